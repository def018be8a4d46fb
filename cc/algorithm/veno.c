/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Veno: C. P. Fu, S. C. Liew, "TCP Veno: TCP enhancement for transmission over wireless access networks", 2003. Reno that
 * takes a loss for chance while Vegas would see no queue.
 *
 *   N      window x (RTT - base RTT) / RTT, the packets this flow has queued
 *   beta   3 packets: with fewer a loss leaves 4/5 of the window, with more 1/2; with more it also grows half as fast
 *
 * Against the kernel's veno: the same. As there, N follows each ACK's round-trip time.
 */
#include "round.h"

struct tl_veno {
	struct tl_round round;
	__u32 queue_x2;		/* N in half packets */
	__u8 doing;		/* nothing is being repaired */
	__u8 grow;		/* with a queue every other time grows */
};

TL_SHOW(struct tl_veno);

static __always_inline void enable(struct tcp_sock *tp, struct tl_veno *ca)
{
	ca->doing = 1;
	ca->round.rtt_us = TL_NO_RTT_US;
}

static __always_inline void begin(struct sock *sk)
{
	struct tl_veno *ca = TL_STATE(struct tl_veno, sk);

	ca->round.base_rtt_us = TL_NO_RTT_US;
	ca->grow = 1;
	enable(tl_tcp(sk), ca);
}

SEC("struct_ops")
void BPF_PROG(tl_veno_init, struct sock *sk)
{
	struct tl_veno *ca = TL_STATE(struct tl_veno, sk);

	tl_round_init(&ca->round, tl_tcp(sk));
	ca->queue_x2 = 0;
	begin(sk);
	TL_SIGN(sk);
}

TL_SAMPLE_ROUNDS(tl_veno)

SEC("struct_ops")
void BPF_PROG(tl_veno_set_state, struct sock *sk, __u8 state)
{
	struct tl_veno *ca = TL_STATE(struct tl_veno, sk);

	if (state == TCP_CA_Open)
		enable(tl_tcp(sk), ca);
	else
		ca->doing = 0;
}

TL_AFTER_IDLE(tl_veno, begin)

static __always_inline void grow(struct tcp_sock *tp, struct tl_veno *ca, __u32 acked)
{
	if (ca->queue_x2 < TL_VENO_BETA_X2) {
		tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
		return;
	}
	if (tp->snd_cwnd_cnt < tp->snd_cwnd) {
		tp->snd_cwnd_cnt += acked;
		return;
	}
	if (ca->grow && tp->snd_cwnd < tp->snd_cwnd_clamp) {
		tp->snd_cwnd++;
		ca->grow = 0;
	} else {
		ca->grow = 1;
	}
	tp->snd_cwnd_cnt = 0;
}

SEC("struct_ops")
void BPF_PROG(tl_veno_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_veno *ca = TL_STATE(struct tl_veno, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	if (!tl_is_cwnd_limited(tp))
		return;
	if (!ca->doing) {
		tl_reno_avoid(tp, acked);
		return;
	}
	if (ca->round.samples <= 2) { /* too few to tell a queue by */
		tl_reno_avoid(tp, acked);
	} else {
		ca->queue_x2 = tl_veno_queue_x2(tp->snd_cwnd, ca->round.rtt_us, ca->round.base_rtt_us);
		if (tl_in_slow_start(tp))
			acked = tcp_slow_start(tp, acked);
		if (acked)
			grow(tp, ca, acked);
	}
	ca->round.rtt_us = TL_NO_RTT_US;
}

SEC("struct_ops")
__u32 BPF_PROG(tl_veno_ssthresh, struct sock *sk)
{
	return tl_veno_left(tl_tcp(sk)->snd_cwnd, TL_STATE(struct tl_veno, sk)->queue_x2);
}

TL_UNDO(tl_veno)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_veno = {
	.init			= (void *)tl_veno_init,
	.ssthresh		= (void *)tl_veno_ssthresh,
	.cong_avoid		= (void *)tl_veno_cong_avoid,
	.set_state		= (void *)tl_veno_set_state,
	.cwnd_event		= (void *)tl_veno_cwnd_event,
	.cwnd_event_tx_start	= (void *)tl_veno_tx_start,
	.pkts_acked		= (void *)tl_veno_pkts_acked,
	.undo_cwnd		= (void *)tl_veno_undo_cwnd,
	.name			= "tl_veno",
};
