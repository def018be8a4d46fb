/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * YeAH: A. Baiocchi, A. Castellani, F. Vacirca, "YeAH-TCP: Yet Another Highspeed TCP", 2007. Fast like Scalable while the
 * queue is short; otherwise slow like Reno, and the queue is drained before it drops.
 *
 *   Q         window x (RTT - base RTT) / RTT of a round, the queue it makes      packets
 *   alpha     80: more than this is a long queue                                  packets
 *   phi       8: so is a queueing delay above 1/8 of the base RTT
 *   epsilon   2: a long queue takes at most 1/2 of the window away at once
 *   delta     8: a loss takes at least 1/8 of the window
 *   rho       16 rounds of slowness: then a loss takes 1/2
 *   zeta      50 rounds of speed: then Reno's count of the window begins anew
 *   fast      1 packet per min(window, 100) acknowledged
 *
 * Against the kernel's yeah: the same, without module parameters.
 */
#include "round.h"

#define ZETA 50
#define SCALABLE 100
#define MIN_RENO 2 /* packets */

struct tl_yeah {
	struct tl_round round;
	__u32 queue_packets;	/* Q of the last round */
	__u32 slow_rounds;	/* in a row with a long queue; 0: fast */
	__u32 fast_rounds;
	__u32 reno_cwnd;	/* what Reno would have at least */
};

TL_SHOW(struct tl_yeah);

SEC("struct_ops")
void BPF_PROG(tl_yeah_init, struct sock *sk)
{
	struct tl_yeah *ca = TL_STATE(struct tl_yeah, sk);

	tl_round_init(&ca->round, tl_tcp(sk));
	ca->queue_packets = 0;
	ca->slow_rounds = 0;
	ca->fast_rounds = 0;
	ca->reno_cwnd = MIN_RENO;
	TL_SIGN(sk);
}

TL_SAMPLE_ROUNDS(tl_yeah)

SEC("struct_ops")
void BPF_PROG(tl_yeah_set_state, struct sock *sk, __u8 state)
{
	if (state == TCP_CA_Open)
		tl_round_begin(&TL_STATE(struct tl_yeah, sk)->round, tl_tcp(sk));
}

static __always_inline void restart(struct sock *sk)
{
	tl_round_init(&TL_STATE(struct tl_yeah, sk)->round, tl_tcp(sk));
}

TL_AFTER_IDLE(tl_yeah, restart)

/* The queue is long: drain it, and be slow. */
static __always_inline void slow(struct tcp_sock *tp, struct tl_yeah *ca, __u32 queue)
{
	__u32 cwnd = tp->snd_cwnd;

	if (queue > TL_YEAH_ALPHA && cwnd > ca->reno_cwnd) {
		cwnd = tl_yeah_drained(cwnd, queue, ca->reno_cwnd);
		tp->snd_cwnd = cwnd;
		tp->snd_ssthresh = cwnd;
	}
	if (ca->reno_cwnd <= MIN_RENO)
		ca->reno_cwnd = tl_max(cwnd / 2, MIN_RENO);
	else
		ca->reno_cwnd++;
	if (ca->slow_rounds != ~0U)
		ca->slow_rounds++;
}

static __always_inline void fast(struct tl_yeah *ca)
{
	if (++ca->fast_rounds > ZETA) {
		ca->reno_cwnd = MIN_RENO;
		ca->fast_rounds = 0;
	}
	ca->slow_rounds = 0;
}

static __always_inline void end_round(struct tcp_sock *tp, struct tl_yeah *ca)
{
	__u32 rtt_us = ca->round.rtt_us, base_us = ca->round.base_rtt_us, queue;

	if (ca->round.samples > 2) { /* fewer may all be of delayed ACKs */
		queue = tl_yeah_queue(tp->snd_cwnd, rtt_us, base_us);
		if (tl_yeah_is_long(queue, rtt_us, base_us))
			slow(tp, ca, queue);
		else
			fast(ca);
		ca->queue_packets = queue;
	}
	tl_round_begin(&ca->round, tp);
}

SEC("struct_ops")
void BPF_PROG(tl_yeah_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_yeah *ca = TL_STATE(struct tl_yeah, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 cwnd;

	if (!tl_is_cwnd_limited(tp))
		return;
	if (tl_in_slow_start(tp))
		acked = tcp_slow_start(tp, acked);
	cwnd = tp->snd_cwnd;
	if (acked)
		tcp_cong_avoid_ai(tp, ca->slow_rounds ? cwnd : tl_min(cwnd, SCALABLE), acked);
	if (tl_after(ack, ca->round.end))
		end_round(tp, ca);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_yeah_ssthresh, struct sock *sk)
{
	struct tl_yeah *ca = TL_STATE(struct tl_yeah, sk);

	ca->fast_rounds = 0;
	ca->reno_cwnd = tl_max(ca->reno_cwnd / 2, MIN_RENO);
	return tl_yeah_left(tl_tcp(sk)->snd_cwnd, ca->queue_packets, ca->slow_rounds);
}

TL_UNDO(tl_yeah)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_yeah = {
	.init			= (void *)tl_yeah_init,
	.ssthresh		= (void *)tl_yeah_ssthresh,
	.cong_avoid		= (void *)tl_yeah_cong_avoid,
	.set_state		= (void *)tl_yeah_set_state,
	.cwnd_event		= (void *)tl_yeah_cwnd_event,
	.cwnd_event_tx_start	= (void *)tl_yeah_tx_start,
	.pkts_acked		= (void *)tl_yeah_pkts_acked,
	.undo_cwnd		= (void *)tl_yeah_undo_cwnd,
	.name			= "tl_yeah",
};
