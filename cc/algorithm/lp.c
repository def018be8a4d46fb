/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * LP: A. Kuzmanovic, E. Knightly, "TCP-LP: Low-priority service via end-point congestion control", 2006. Takes what others
 * leave: it goes down at the first sign of a queue on the way there, told by the clocks in the timestamps.
 *
 *   owd         one-way delay, its own clock's offset included: only differences count      ms
 *   threshold   owd above the least by more than 15 % of the span: someone else is there
 *   inference   3 round-trip times after such a sign: it does not grow, and a second sign then leaves 1 packet
 *   the first sign leaves 1/2 of the window, as does a loss
 *
 * Against the kernel's lp: the same. Timestamps (RFC 7323) must be on, with a clock of 1 ms as Linux has; without them, and
 * where a route asks for timestamps in microseconds, it is Reno. As there, too, the smoothed delay is kept times 8 in 32
 * bits: a pair of hosts whose timestamps are further apart than 2^29 ms wraps it, and is hardly ever seen to queue. This is
 * kept so that a flow behaves as it would under the module; taking the offset out would make LP more polite than that.
 */
#include "cc.h"

#define INFERENCE_RTTS 3

struct tl_lp {
	struct tl_lp_delay delay;
	__u32 remote_hz;	/* ticks per second of the peer's clock, smoothed; 0: not known yet */
	__u32 remote_tsval;	/* of the ACK before */
	__u32 local_tsecr;
	__u32 drop_ms;		/* when it last went down; 0: never */
	__u32 inference_ms;
	__u32 queue_ms;		/* owd above its least, when last looked at */
	__u32 span_ms;		/* its largest above its least */
	__u8 within_inference;
};

TL_SHOW(struct tl_lp);

SEC("struct_ops")
void BPF_PROG(tl_lp_init, struct sock *sk)
{
	struct tl_lp *ca = TL_STATE(struct tl_lp, sk);

	__builtin_memset(ca, 0, sizeof(*ca));
	ca->delay.owd_min_ms = ~0U;
	TL_SIGN(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_lp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tl_tcp(sk);

	if (!TL_STATE(struct tl_lp, sk)->within_inference && tl_is_cwnd_limited(tp))
		tl_reno_avoid(tp, acked);
}

static __always_inline bool usec_timestamps(const struct tcp_sock *tp)
{
	return bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts);
}

static __always_inline void estimate_hz(const struct tcp_sock *tp, struct tl_lp *ca)
{
	__u32 tsval = tp->rx_opt.rcv_tsval, tsecr = tp->rx_opt.rcv_tsecr;
	__u32 remote = tsval - ca->remote_tsval, local = tsecr - ca->local_tsecr;

	if (ca->remote_tsval && ca->local_tsecr && remote && local)
		ca->remote_hz = tl_lp_hz(ca->remote_hz, remote, local);
	ca->remote_tsval = tsval;
	ca->local_tsecr = tsecr;
}

/* The one-way delay of what the ACK acknowledges, in ms, and the offset of the clocks. 0: none. */
static __always_inline __u32 one_way(const struct tcp_sock *tp, struct tl_lp *ca)
{
	estimate_hz(tp, ca);
	if (!ca->remote_hz)
		return 0;
	return tp->rx_opt.rcv_tsval * (TL_LP_PER_SECOND / ca->remote_hz) - tp->rx_opt.rcv_tsecr;
}

static __always_inline void sample(struct tcp_sock *tp, struct tl_lp *ca)
{
	__u32 owd_ms = one_way(tp, ca);

	if (owd_ms)
		tl_lp_sample(&ca->delay, owd_ms);
}

static __always_inline void show(struct tl_lp *ca)
{
	__u32 owd_ms = ca->delay.owd_ms_x8 >> 3;

	ca->queue_ms = owd_ms > ca->delay.owd_min_ms ? owd_ms - ca->delay.owd_min_ms : 0;
	ca->span_ms = ca->delay.owd_max_ms > ca->delay.owd_min_ms ? ca->delay.owd_max_ms - ca->delay.owd_min_ms : 0;
}

SEC("struct_ops")
void BPF_PROG(tl_lp_pkts_acked, struct sock *sk, const struct ack_sample *acks)
{
	struct tl_lp *ca = TL_STATE(struct tl_lp, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 now_ms = (__u32)(tp->tcp_mstamp / TL_USEC_PER_MSEC);
	__s32 rtt_ms = now_ms - tp->rx_opt.rcv_tsecr;

	if (usec_timestamps(tp))
		return;
	if (acks->rtt_us > 0)
		sample(tp, ca);
	if (rtt_ms > 0)
		ca->inference_ms = INFERENCE_RTTS * rtt_ms;
	ca->within_inference = ca->drop_ms && now_ms - ca->drop_ms < ca->inference_ms;
	show(ca);
	if (!tl_lp_is_queued(&ca->delay))
		return;
	tl_lp_begin_anew(&ca->delay);
	tp->snd_cwnd = ca->within_inference ? 1U : tl_max(tp->snd_cwnd >> 1, 1U);
	ca->drop_ms = now_ms;
}

TL_HALVE(tl_lp)

TL_UNDO(tl_lp)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_lp = {
	.init		= (void *)tl_lp_init,
	.ssthresh	= (void *)tl_lp_ssthresh,
	.cong_avoid	= (void *)tl_lp_cong_avoid,
	.pkts_acked	= (void *)tl_lp_pkts_acked,
	.undo_cwnd	= (void *)tl_lp_undo_cwnd,
	.name		= "tl_lp",
};
