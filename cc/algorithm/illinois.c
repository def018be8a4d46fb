/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Illinois: S. Liu, T. Basar, R. Srikant, "TCP-Illinois: A loss- and delay-based congestion control algorithm for
 * high-speed networks", 2006. Loss says when to go down, queueing delay how far, and how fast up.
 *
 *   da       mean round-trip time of the last round above the least ever    us
 *   dm       the largest ever above the least ever                          us
 *   alpha    10 while da <= d1 = 1 % of dm, then k1 / (k2 + da), 0.3 at dm  packets per round trip
 *   beta     1/8 up to d2 = 10 % of dm, in a line to 1/2 at d3 = 80 %       of the window, after a loss
 *   theta    5 rounds with da <= d1 before alpha is 10 again
 *   below 15 packets as Reno: alpha 1, beta 1/2
 *
 * Against the kernel's illinois: the same, without module parameters. A time-out begins anew with alpha and beta of Reno
 * and with the round; base and largest round-trip time stay, as there.
 */
#include "cc.h"

#define ALPHA_RENO_X128 128
#define BETA_RENO_X64 32
#define RENO_WINDOW 15	/* packets */
#define NO_RTT_US 0x7fffffff

struct tl_illinois {
	__u64 rtt_sum_us;	/* of this round */
	__u32 rtt_count;
	__u32 round_end;	/* the round ends when this is acknowledged */
	__u32 base_rtt_us;	/* the least ever */
	__u32 max_rtt_us;	/* the largest ever */
	__u32 acked;		/* packets, by the ACK at hand */
	__u32 alpha_x128;
	__u32 beta_x64;
	__u32 queue_us;		/* da of the last round */
	__u8 rtt_low;		/* rounds with da <= d1 */
	__u8 rtt_above;		/* da has been above d1 since alpha was 10 */
};

TL_SHOW(struct tl_illinois);

static __always_inline void new_round(const struct tcp_sock *tp, struct tl_illinois *ca)
{
	ca->round_end = tp->snd_nxt;
	ca->rtt_count = 0;
	ca->rtt_sum_us = 0;
}

SEC("struct_ops")
void BPF_PROG(tl_illinois_init, struct sock *sk)
{
	struct tl_illinois *ca = TL_STATE(struct tl_illinois, sk);

	ca->alpha_x128 = TL_ILLINOIS_ALPHA_MAX_X128;
	ca->beta_x64 = BETA_RENO_X64;
	ca->base_rtt_us = NO_RTT_US;
	ca->max_rtt_us = 0;
	ca->acked = 0;
	ca->queue_us = 0;
	ca->rtt_low = 0;
	ca->rtt_above = 0;
	new_round(tl_tcp(sk), ca);
	TL_SIGN(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_illinois_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tl_illinois *ca = TL_STATE(struct tl_illinois, sk);
	__s32 rtt_us = sample->rtt_us;

	ca->acked = sample->pkts_acked;
	if (rtt_us < 0)
		return;
	ca->base_rtt_us = tl_min(ca->base_rtt_us, (__u32)rtt_us);
	ca->max_rtt_us = tl_max(ca->max_rtt_us, (__u32)rtt_us);
	ca->rtt_count++;
	ca->rtt_sum_us += rtt_us;
}

static __always_inline void end_round(const struct tcp_sock *tp, struct tl_illinois *ca)
{
	__u32 dm_us;

	if (tp->snd_cwnd < RENO_WINDOW) {
		ca->alpha_x128 = ALPHA_RENO_X128;
		ca->beta_x64 = BETA_RENO_X64;
	} else if (ca->rtt_count) {
		dm_us = ca->max_rtt_us - ca->base_rtt_us;
		ca->queue_us = (__u32)(ca->rtt_sum_us / ca->rtt_count) - ca->base_rtt_us;
		ca->alpha_x128 = tl_illinois_next_alpha_x128(ca->alpha_x128, ca->queue_us, dm_us, &ca->rtt_above, &ca->rtt_low);
		ca->beta_x64 = tl_illinois_beta_x64(ca->queue_us, dm_us);
	}
	new_round(tp, ca);
}

SEC("struct_ops")
void BPF_PROG(tl_illinois_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_illinois *ca = TL_STATE(struct tl_illinois, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 cwnd = tp->snd_cwnd, grown;

	if (tl_after(ack, ca->round_end))
		end_round(tp, ca);
	if (!tl_is_cwnd_limited(tp))
		return;
	if (tl_in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
		return;
	}
	tp->snd_cwnd_cnt += ca->acked;
	ca->acked = 1; /* if another ACK comes without a sample */
	grown = (__u32)((__u64)tp->snd_cwnd_cnt * ca->alpha_x128 >> 7);
	if (grown < cwnd || !cwnd)
		return;
	tp->snd_cwnd = tl_min(cwnd + grown / cwnd, tp->snd_cwnd_clamp);
	tp->snd_cwnd_cnt = 0;
}

SEC("struct_ops")
void BPF_PROG(tl_illinois_set_state, struct sock *sk, __u8 state)
{
	struct tl_illinois *ca = TL_STATE(struct tl_illinois, sk);

	if (state != TCP_CA_Loss)
		return;
	ca->alpha_x128 = ALPHA_RENO_X128;
	ca->beta_x64 = BETA_RENO_X64;
	ca->rtt_low = 0;
	ca->rtt_above = 0;
	new_round(tl_tcp(sk), ca);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_illinois_ssthresh, struct sock *sk)
{
	return tl_decrease_by(tl_tcp(sk)->snd_cwnd, TL_STATE(struct tl_illinois, sk)->beta_x64, 64);
}

TL_UNDO(tl_illinois)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_illinois = {
	.init		= (void *)tl_illinois_init,
	.ssthresh	= (void *)tl_illinois_ssthresh,
	.cong_avoid	= (void *)tl_illinois_cong_avoid,
	.set_state	= (void *)tl_illinois_set_state,
	.pkts_acked	= (void *)tl_illinois_pkts_acked,
	.undo_cwnd	= (void *)tl_illinois_undo_cwnd,
	.name		= "tl_illinois",
};
