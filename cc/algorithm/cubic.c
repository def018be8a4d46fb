/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * CUBIC: RFC 9438, with HyStart (Ha, Rhee, 2008) to leave slow start before the queue is full.
 *
 *   C            0.4 packets/s^3         how fast the curve is
 *   beta         0.7                     what is left after a loss
 *   HyStart      from 16 packets on; leaves slow start when ACKs of one train, at most 2 ms apart, last for half a
 *                round trip, or when the least of 8 round-trip times of a round is 1/8, 4 to 16 ms, above the least ever
 *
 * Against the kernel's cubic: times are in microseconds, not in ticks of the clock, so that the curve is not in steps of
 * a tick. beta is 717/1024, C 2/5 exactly and not 410/1024. Where a link is paced the train must last a whole round trip,
 * there as here. No module parameters.
 */
#include "tick.h"

#define HYSTART_LOW_WINDOW 16	/* packets */
#define HYSTART_TRAIN_GAP_US 2000
#define HYSTART_SAMPLES 8	/* round-trip times of a round */
#define SAME_WINDOW_US 31250	/* the curve is asked again after this long at the latest */
#define PACING_NONE 0

struct tl_cubic {
	__u64 epoch_us;		/* when this growth began; 0: with the next ACK */
	__u64 update_us;	/* when the curve was asked last */
	__u32 count;		/* packets acknowledged per packet of growth */
	__u32 max_cwnd;		/* where the window fell from; 0: no loss yet */
	__u32 update_cwnd;	/* for which the curve was asked */
	__u32 origin_cwnd;	/* of the curve's middle */
	__u32 k_1024ths;	/* from the epoch to the middle, 1/1024 s */
	__u32 rtt_min_us;	/* 0: none yet */
	__u32 acked;		/* in this growth, not yet turned into reno_cwnd */
	__u32 reno_cwnd;	/* what Reno would have now */
	__u32 round_end;	/* HyStart: the round ends when this is acknowledged */
	__u32 round_rtt_us;	/* the least of the round */
	__u32 round_us;		/* when the round began */
	__u32 train_us;		/* the last ACK of the train */
	__u8 samples;
	__u8 found;		/* slow start is over by HyStart */
};

TL_SHOW(struct tl_cubic);

static __always_inline void reset(struct tl_cubic *ca)
{
	ca->epoch_us = 0;
	ca->update_us = 0;
	ca->count = 0;
	ca->max_cwnd = 0;
	ca->update_cwnd = 0;
	ca->origin_cwnd = 0;
	ca->k_1024ths = 0;
	ca->rtt_min_us = 0;
	ca->acked = 0;
	ca->reno_cwnd = 0;
	ca->found = 0;
}

static __always_inline void new_round(const struct tcp_sock *tp, struct tl_cubic *ca)
{
	ca->round_us = ca->train_us = (__u32)tp->tcp_mstamp;
	ca->round_end = tp->snd_nxt;
	ca->round_rtt_us = ~0U;
	ca->samples = 0;
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_init, struct sock *sk)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);

	reset(ca);
	new_round(tl_tcp(sk), ca);
	TL_SIGN(sk);
}

/* After idle time the curve goes on where it was: what was not sent shows nothing of the path. */
static __always_inline void start(struct sock *sk)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u64 now_us = tp->tcp_mstamp;

	if (ca->epoch_us)
		ca->epoch_us = tl_min(ca->epoch_us + tl_idle_us(tp), now_us);
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_cwnd_event, struct sock *sk, __u32 event)
{
	if (event == CA_EVENT_TX_START)
		start(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_tx_start, struct sock *sk)
{
	start(sk);
}

/* A new growth: the curve's middle lies where the window fell from, or here. */
static __always_inline void begin(struct tl_cubic *ca, __u32 cwnd, __u32 acked, __u64 now_us)
{
	ca->epoch_us = now_us;
	ca->acked = acked;
	ca->reno_cwnd = cwnd;
	if (ca->max_cwnd <= cwnd) {
		ca->k_1024ths = 0;
		ca->origin_cwnd = cwnd;
	} else {
		ca->k_1024ths = tl_cubic_k(ca->max_cwnd - cwnd);
		ca->origin_cwnd = ca->max_cwnd;
	}
}

/* From the curve one round trip ahead: the window there, and so the pace towards it. */
static __always_inline __u32 pace(struct tl_cubic *ca, __u32 cwnd, __u64 now_us)
{
	__u64 t = (now_us - ca->epoch_us + ca->rtt_min_us) * 1024 / TL_USEC_PER_SEC;
	__u32 count = tl_cubic_count(cwnd, tl_cubic_target(ca->origin_cwnd, ca->k_1024ths, t));

	/* Before the first loss there is no curve to speak of: at least 5 % per round trip. */
	return ca->max_cwnd ? count : tl_min(count, 20U);
}

/* Never below what Reno would have with the same losses. */
static __always_inline __u32 friendly(struct tl_cubic *ca, __u32 cwnd, __u32 count)
{
	__u32 per = tl_cubic_reno_count(cwnd), grown;

	if (per && ca->acked > per) {
		grown = (ca->acked - 1) / per;
		ca->reno_cwnd += grown;
		ca->acked -= grown * per;
	}
	if (ca->reno_cwnd > cwnd)
		count = tl_min(count, cwnd / (ca->reno_cwnd - cwnd));
	return count;
}

static __always_inline void update(struct tcp_sock *tp, struct tl_cubic *ca, __u32 acked)
{
	__u32 cwnd = tp->snd_cwnd;
	__u64 now_us = tp->tcp_mstamp;

	ca->acked += acked;
	if (ca->update_cwnd == cwnd && now_us - ca->update_us <= SAME_WINDOW_US)
		return;
	ca->update_cwnd = cwnd;
	ca->update_us = now_us;
	if (!ca->epoch_us)
		begin(ca, cwnd, acked, now_us);
	/* 2: at most half the window more per round trip. */
	ca->count = tl_max(friendly(ca, cwnd, pace(ca, cwnd, now_us)), 2U);
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	acked = tl_beyond_slow_start(tp, acked);
	if (!acked)
		return;
	update(tp, ca, acked);
	tcp_cong_avoid_ai(tp, ca->count, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_cubic_ssthresh, struct sock *sk)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);
	__u32 cwnd = tl_tcp(sk)->snd_cwnd;

	ca->epoch_us = 0;
	ca->max_cwnd = tl_converge(cwnd, ca->max_cwnd, TL_CUBIC_BETA, TL_CUBIC_BETA_OF);
	return tl_decrease(cwnd, TL_CUBIC_BETA, TL_CUBIC_BETA_OF);
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_set_state, struct sock *sk, __u8 state)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);

	if (state != TCP_CA_Loss)
		return;
	reset(ca);
	new_round(tl_tcp(sk), ca);
}

static __always_inline void hystart(struct sock *sk, struct tl_cubic *ca, __u32 rtt_us)
{
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 now_us = (__u32)tp->tcp_mstamp, train_us;

	/* Rounds are followed from the first on: one that began in mid-flight would make every train too long. */
	if (tl_after(tp->snd_una, ca->round_end))
		new_round(tp, ca);
	if (tp->snd_cwnd < HYSTART_LOW_WINDOW)
		return;
	if (now_us - ca->train_us <= HYSTART_TRAIN_GAP_US) {
		ca->train_us = now_us;
		train_us = tl_hystart_train_us(ca->rtt_min_us, sk->sk_pacing_rate, sk->sk_pacing_status != PACING_NONE);
		if (now_us - ca->round_us > train_us)
			ca->found = 1;
	}
	ca->round_rtt_us = tl_min(ca->round_rtt_us, rtt_us);
	if (ca->samples < HYSTART_SAMPLES) {
		ca->samples++;
	} else if (ca->round_rtt_us > ca->rtt_min_us + tl_hystart_delay_us(ca->rtt_min_us)) {
		ca->found = 1;
	}
	if (ca->found)
		tp->snd_ssthresh = tp->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(tl_cubic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tl_cubic *ca = TL_STATE(struct tl_cubic, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__s32 rtt_us = sample->rtt_us;

	if (rtt_us < 0)
		return;
	/* Just after a recovery round-trip times say little. */
	if (ca->epoch_us && tp->tcp_mstamp - ca->epoch_us < TL_USEC_PER_SEC)
		return;
	rtt_us = tl_max(rtt_us, 1);
	if (!ca->rtt_min_us || rtt_us < ca->rtt_min_us)
		ca->rtt_min_us = rtt_us;
	if (!ca->found && tl_in_slow_start(tp))
		hystart(sk, ca, rtt_us);
}

TL_UNDO(tl_cubic)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_cubic = {
	.init			= (void *)tl_cubic_init,
	.ssthresh		= (void *)tl_cubic_ssthresh,
	.cong_avoid		= (void *)tl_cubic_cong_avoid,
	.set_state		= (void *)tl_cubic_set_state,
	.cwnd_event		= (void *)tl_cubic_cwnd_event,
	.cwnd_event_tx_start	= (void *)tl_cubic_tx_start,
	.pkts_acked		= (void *)tl_cubic_pkts_acked,
	.undo_cwnd		= (void *)tl_cubic_undo_cwnd,
	.name			= "tl_cubic",
};
