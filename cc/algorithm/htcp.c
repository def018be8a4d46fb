/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * H-TCP: D. Leith, R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", 2004. The longer the last loss is ago,
 * the faster it grows; what a loss takes follows from how full the queue was.
 *
 *   t       since the last loss                                                                s
 *   alpha   2 (1 - beta) x (1 for t < 1, then 1 + 10 (t - 1) + ((t - 1) / 2)^2), scaled by
 *           RTT / 100 ms, from 1/10 to 2                                                       packets per round trip
 *   beta    least / largest round-trip time, from 0.5 to 0.8; 0.5 where the rate before this loss and the one before
 *           differ by more than a fifth, or the round-trip time is at most 10 ms
 *
 * Against the kernel's htcp: the same, without module parameters. Round-trip times are whole ticks, rounded up, as there.
 */
#include "tick.h"

#define SHORT_RTT_US 10000
#define RTT_STEP_US 20000 /* the largest round-trip time grows by at most this at once */

struct tl_htcp {
	__u32 alpha_x128;
	__u32 beta_x128;
	__u32 acked;		/* packets, by the ACK at hand */
	__u32 rtt_min_ticks;	/* 0: none yet */
	__u32 rtt_max_ticks;
	__u32 loss_tick;	/* when the last loss was */
	__u32 undo_loss_tick;	/* what was before it, if it was none; 0: nothing */
	__u32 undo_rtt_max_ticks;
	__u32 undo_old_max_pps;
	__u32 packets;		/* acknowledged since rate_tick */
	__u32 rate_tick;
	__u32 rate_pps;		/* packets per second, smoothed */
	__u32 min_pps;		/* since the last loss */
	__u32 max_pps;
	__u32 old_max_pps;	/* before it */
	__u8 steady;		/* two losses at about the same rate */
};

TL_SHOW(struct tl_htcp);

static __always_inline __u32 per_second(void)
{
	return TL_USEC_PER_SEC / tl_tick_us;
}

SEC("struct_ops")
void BPF_PROG(tl_htcp_init, struct sock *sk)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);

	__builtin_memset(ca, 0, sizeof(*ca));
	ca->alpha_x128 = TL_HTCP_ALPHA_ONE_X128;
	ca->beta_x128 = TL_HTCP_BETA_MIN_X128;
	ca->acked = 1;
	ca->loss_tick = tl_now_tick();
	TL_SIGN(sk);
}

static __always_inline void sample_rtt(struct sock *sk, struct tl_htcp *ca, __u32 ticks)
{
	if (!ca->rtt_min_ticks || ticks < ca->rtt_min_ticks)
		ca->rtt_min_ticks = ticks;
	if (tl_ca_state(sk) != TCP_CA_Open)
		return;
	ca->rtt_max_ticks = tl_max(ca->rtt_max_ticks, ca->rtt_min_ticks);
	if (ticks > ca->rtt_max_ticks && ticks <= ca->rtt_max_ticks + tl_ticks(RTT_STEP_US))
		ca->rtt_max_ticks = ticks;
}

/* About once a window: what was carried since. */
static __always_inline void sample_rate(struct tl_htcp *ca, __u32 now)
{
	__u32 pps = ca->packets * per_second() / (now - ca->rate_tick);

	if ((now - ca->loss_tick) / ca->rtt_min_ticks <= 3) { /* what is just after a loss is not to be mixed with what was before */
		ca->min_pps = ca->max_pps = ca->rate_pps = pps;
	} else {
		ca->rate_pps = (3 * ca->rate_pps + pps) / 4;
		ca->max_pps = tl_max(ca->max_pps, ca->rate_pps);
		ca->min_pps = tl_min(ca->min_pps, ca->max_pps);
	}
	ca->packets = 0;
	ca->rate_tick = now;
}

SEC("struct_ops")
void BPF_PROG(tl_htcp_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);
	__u32 now = tl_now_tick(), window;
	__u8 state = tl_ca_state(sk);

	if (state == TCP_CA_Open)
		ca->acked = sample->pkts_acked;
	if (sample->rtt_us > 0)
		sample_rtt(sk, ca, tl_ticks(sample->rtt_us));
	if (state != TCP_CA_Open && state != TCP_CA_Disorder) {
		ca->packets = 0;
		ca->rate_tick = now;
		return;
	}
	ca->packets += sample->pkts_acked;
	window = tl_tcp(sk)->snd_cwnd - tl_max(ca->alpha_x128 >> 7, 1U);
	if (ca->packets >= window && ca->rtt_min_ticks && now - ca->rate_tick >= ca->rtt_min_ticks)
		sample_rate(ca, now);
}

static __always_inline void set_beta(struct tl_htcp *ca)
{
	__u32 max = ca->max_pps, old = ca->old_max_pps, beta;

	ca->old_max_pps = max;
	if (!tl_htcp_is_steady(max, old)) {
		ca->beta_x128 = TL_HTCP_BETA_MIN_X128;
		ca->steady = 0;
		return;
	}
	beta = TL_HTCP_BETA_MIN_X128;
	if (ca->steady && ca->rtt_min_ticks > tl_ticks(SHORT_RTT_US) && ca->rtt_max_ticks)
		beta = tl_htcp_beta_x128(ca->rtt_min_ticks, ca->rtt_max_ticks);
	ca->beta_x128 = beta;
	ca->steady = 1;
}

static __always_inline void set_alpha(struct tl_htcp *ca)
{
	ca->alpha_x128 = tl_htcp_alpha_x128(tl_now_tick() - ca->loss_tick, per_second(), ca->rtt_min_ticks, ca->beta_x128);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_htcp_ssthresh, struct sock *sk)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);

	set_beta(ca);
	set_alpha(ca);
	/* The largest round-trip time fades, so that it can follow the path. */
	if (ca->rtt_min_ticks && ca->rtt_max_ticks > ca->rtt_min_ticks)
		ca->rtt_max_ticks = ca->rtt_min_ticks + (ca->rtt_max_ticks - ca->rtt_min_ticks) * 95 / 100;
	return tl_decrease(tl_tcp(sk)->snd_cwnd, ca->beta_x128, 128);
}

SEC("struct_ops")
void BPF_PROG(tl_htcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	if (!tl_is_cwnd_limited(tp))
		return;
	if (tl_in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
		return;
	}
	if ((__u64)tp->snd_cwnd_cnt * ca->alpha_x128 >> 7 >= tp->snd_cwnd) {
		if (tp->snd_cwnd < tp->snd_cwnd_clamp)
			tp->snd_cwnd++;
		tp->snd_cwnd_cnt = 0;
		set_alpha(ca);
	} else {
		tp->snd_cwnd_cnt += ca->acked;
	}
	ca->acked = 1;
}

static __always_inline void note_loss(struct tl_htcp *ca)
{
	ca->undo_loss_tick = ca->loss_tick;
	ca->undo_rtt_max_ticks = ca->rtt_max_ticks;
	ca->undo_old_max_pps = ca->old_max_pps;
	ca->loss_tick = tl_now_tick();
}

SEC("struct_ops")
void BPF_PROG(tl_htcp_set_state, struct sock *sk, __u8 state)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);

	if (state == TCP_CA_Open) {
		if (ca->undo_loss_tick) { /* it is repaired: time runs from here */
			ca->loss_tick = tl_now_tick();
			ca->undo_loss_tick = 0;
		}
	} else if (state != TCP_CA_Disorder) {
		note_loss(ca);
	}
}

SEC("struct_ops")
__u32 BPF_PROG(tl_htcp_undo_cwnd, struct sock *sk)
{
	struct tl_htcp *ca = TL_STATE(struct tl_htcp, sk);

	if (ca->undo_loss_tick) {
		ca->loss_tick = ca->undo_loss_tick;
		ca->rtt_max_ticks = ca->undo_rtt_max_ticks;
		ca->old_max_pps = ca->undo_old_max_pps;
		ca->undo_loss_tick = 0;
	}
	return tl_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_htcp = {
	.init		= (void *)tl_htcp_init,
	.ssthresh	= (void *)tl_htcp_ssthresh,
	.cong_avoid	= (void *)tl_htcp_cong_avoid,
	.set_state	= (void *)tl_htcp_set_state,
	.pkts_acked	= (void *)tl_htcp_pkts_acked,
	.undo_cwnd	= (void *)tl_htcp_undo_cwnd,
	.name		= "tl_htcp",
};
