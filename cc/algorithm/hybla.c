/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Hybla: C. Caini, R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", 2004. On a long path it grows
 * as a flow would on a path of a reference round-trip time.
 *
 *   RTT0   25 ms, the reference
 *   rho    RTT / RTT0, at least 1
 *   each ACK adds 2^rho - 1 packets in slow start, rho^2 / window packets then
 *   loss   1/2 of the window, as Reno
 *
 * Against the kernel's hybla: the same, without module parameters. As there, growth counts ACKs and not what they
 * acknowledge. The largest window is 65535 packets there by the socket's clamp, here by the algorithm. A flow that comes to it
 * in mid-flow keeps its window; there it begins anew, with rho packets.
 */
#include "cc.h"

#define MAX_CWND 65535
#define HANDSHAKE 1 /* packets delivered before any data: the SYN */

struct tl_hybla {
	__u32 rho_x8;
	__u32 rho2_x128;	/* rho squared */
	__u32 rtt_min_us_x8;	/* the least smoothed round-trip time; rho follows it */
	__u32 parts_x128;	/* of a packet, that the window has yet to grow by */
	__u8 doing;		/* nothing is being repaired */
};

TL_SHOW(struct tl_hybla);

static __always_inline void follow(const struct tcp_sock *tp, struct tl_hybla *ca)
{
	ca->rho_x8 = tl_hybla_rho_x8(tp->srtt_us);
	ca->rho2_x128 = tl_hybla_rho2_x128(ca->rho_x8);
}

SEC("struct_ops")
void BPF_PROG(tl_hybla_init, struct sock *sk)
{
	struct tl_hybla *ca = TL_STATE(struct tl_hybla, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	ca->parts_x128 = 0;
	ca->doing = 1;
	follow(tp, ca);
	ca->rtt_min_us_x8 = tp->srtt_us;
	if (tp->delivered <= HANDSHAKE)
		tp->snd_cwnd = tl_max(ca->rho_x8 >> 3, 1U);
	TL_SIGN(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_hybla_set_state, struct sock *sk, __u8 state)
{
	TL_STATE(struct tl_hybla, sk)->doing = state == TCP_CA_Open;
}

static __always_inline void grow(struct tcp_sock *tp, struct tl_hybla *ca)
{
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh, more_x128, whole;
	bool slow_start = cwnd < ssthresh;

	if (slow_start) {
		more_x128 = tl_hybla_slow_start_x128(ca->rho_x8);
	} else {
		more_x128 = tl_hybla_avoid_x128(ca->rho2_x128, cwnd);
		if (more_x128 < TL_HYBLA_ONE_X128)
			tp->snd_cwnd_cnt++;
	}
	ca->parts_x128 += more_x128 % TL_HYBLA_ONE_X128;
	whole = ca->parts_x128 / TL_HYBLA_ONE_X128;
	ca->parts_x128 %= TL_HYBLA_ONE_X128;
	if (whole)
		tp->snd_cwnd_cnt = 0;
	cwnd += more_x128 / TL_HYBLA_ONE_X128 + whole;
	/* A window beyond rho^2 * 128 would never grow by so small parts: then as Reno. */
	if (!more_x128 && tp->snd_cwnd_cnt >= cwnd) {
		cwnd++;
		tp->snd_cwnd_cnt = 0;
	}
	if (slow_start)
		cwnd = tl_min(cwnd, ssthresh);
	cwnd = tl_min(cwnd, MAX_CWND);
	tp->snd_cwnd = tl_min(cwnd, tp->snd_cwnd_clamp);
}

SEC("struct_ops")
void BPF_PROG(tl_hybla_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_hybla *ca = TL_STATE(struct tl_hybla, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	if (tp->srtt_us < ca->rtt_min_us_x8 || !ca->rtt_min_us_x8) {
		follow(tp, ca);
		ca->rtt_min_us_x8 = tp->srtt_us;
	}
	if (!tl_is_cwnd_limited(tp))
		return;
	if (ca->doing)
		grow(tp, ca);
	else
		tl_reno_avoid(tp, acked);
}

TL_HALVE(tl_hybla)

TL_UNDO(tl_hybla)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_hybla = {
	.init		= (void *)tl_hybla_init,
	.ssthresh	= (void *)tl_hybla_ssthresh,
	.cong_avoid	= (void *)tl_hybla_cong_avoid,
	.set_state	= (void *)tl_hybla_set_state,
	.undo_cwnd	= (void *)tl_hybla_undo_cwnd,
	.name		= "tl_hybla",
};
