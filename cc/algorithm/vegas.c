/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Vegas: L. S. Brakmo, L. L. Peterson, "TCP Vegas: End to end congestion avoidance on a global Internet", 1995. Once a
 * round it compares what the window should carry with what it does: the difference is this flow's packets in the queue.
 *
 *   diff    window x (RTT - base RTT) / base RTT    packets
 *   alpha   2: with fewer, a packet more
 *   beta    4: with more, a packet less
 *   gamma   1: with more, slow start is over
 *   loss    1/2 of the window, as Reno
 *
 * Against the kernel's vegas: the same, without module parameters. RTT is the least of the round, which delayed ACKs do not
 * disturb. Slow start doubles each round, not each other as in the paper.
 */
#include "round.h"

struct tl_vegas {
	struct tl_round round;
	__u32 queue_packets;	/* diff of the last round */
	__u8 doing;		/* nothing is being repaired */
};

TL_SHOW(struct tl_vegas);

SEC("struct_ops")
void BPF_PROG(tl_vegas_init, struct sock *sk)
{
	struct tl_vegas *ca = TL_STATE(struct tl_vegas, sk);

	tl_round_init(&ca->round, tl_tcp(sk));
	ca->queue_packets = 0;
	ca->doing = 1;
	TL_SIGN(sk);
}

TL_SAMPLE_ROUNDS(tl_vegas)

SEC("struct_ops")
void BPF_PROG(tl_vegas_set_state, struct sock *sk, __u8 state)
{
	struct tl_vegas *ca = TL_STATE(struct tl_vegas, sk);

	ca->doing = state == TCP_CA_Open;
	if (ca->doing)
		tl_round_begin(&ca->round, tl_tcp(sk));
}

static __always_inline void restart(struct sock *sk)
{
	struct tl_vegas *ca = TL_STATE(struct tl_vegas, sk);

	tl_round_init(&ca->round, tl_tcp(sk));
	ca->doing = 1;
}

TL_AFTER_IDLE(tl_vegas, restart)

/* The window may fall below ssthresh by itself: that is no reason for slow start. */
static __always_inline void lower_ssthresh(struct tcp_sock *tp)
{
	tp->snd_ssthresh = tl_min(tp->snd_ssthresh, tp->snd_cwnd);
}

static __always_inline void steer(struct tcp_sock *tp, struct tl_vegas *ca, __u32 acked)
{
	__u32 cwnd = tp->snd_cwnd, rtt_us = ca->round.rtt_us, base_us = ca->round.base_rtt_us;

	ca->queue_packets = tl_vegas_queue(cwnd, rtt_us, base_us);
	if (tl_in_slow_start(tp)) {
		if (ca->queue_packets > TL_VEGAS_GAMMA) {
			tp->snd_cwnd = tl_vegas_exit(cwnd, rtt_us, base_us);
			lower_ssthresh(tp);
		} else {
			tcp_slow_start(tp, acked);
		}
	} else {
		tp->snd_cwnd = tl_vegas_next(cwnd, ca->queue_packets);
		if (tp->snd_cwnd < cwnd)
			lower_ssthresh(tp);
	}
	cwnd = tl_max(tp->snd_cwnd, 2U);
	tp->snd_cwnd = tl_min(cwnd, tp->snd_cwnd_clamp);
	/* So that after a pause slow start leads back to near here. */
	tp->snd_ssthresh = tl_max(tp->snd_ssthresh, (tp->snd_cwnd >> 1) + (tp->snd_cwnd >> 2));
}

SEC("struct_ops")
void BPF_PROG(tl_vegas_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_vegas *ca = TL_STATE(struct tl_vegas, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	if (ca->doing && tl_after(ack, ca->round.end)) {
		if (ca->round.samples > 2)
			steer(tp, ca, acked);
		else if (tl_is_cwnd_limited(tp)) /* too few to tell a queue by */
			tl_reno_avoid(tp, acked);
		tl_round_begin(&ca->round, tp);
	} else if (ca->doing) {
		if (tl_in_slow_start(tp))
			tcp_slow_start(tp, acked);
	} else if (tl_is_cwnd_limited(tp)) {
		tl_reno_avoid(tp, acked);
	}
}

TL_HALVE(tl_vegas)

TL_UNDO(tl_vegas)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_vegas = {
	.init			= (void *)tl_vegas_init,
	.ssthresh		= (void *)tl_vegas_ssthresh,
	.cong_avoid		= (void *)tl_vegas_cong_avoid,
	.set_state		= (void *)tl_vegas_set_state,
	.cwnd_event		= (void *)tl_vegas_cwnd_event,
	.cwnd_event_tx_start	= (void *)tl_vegas_tx_start,
	.pkts_acked		= (void *)tl_vegas_pkts_acked,
	.undo_cwnd		= (void *)tl_vegas_undo_cwnd,
	.name			= "tl_vegas",
};
