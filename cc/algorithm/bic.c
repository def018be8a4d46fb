/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * BIC: L. Xu, K. Harfoush, I. Rhee, "Binary increase congestion control for fast long-distance networks", 2004. A search
 * for the window at which the last loss came: in large steps at first, in small ones near it, and beyond it the mirror image.
 *
 *   beta           0.8 of the window is left after a loss (819/1024)
 *   max increment  16 packets per round trip
 *   low window     14 packets; at and below as Reno
 *   search         1/4 of the distance per round trip; within a packet of it over 5 round trips
 *
 * Against the kernel's bic: the same, without module parameters. As there, growth counts acknowledged packets and is also
 * scaled by the packets per ACK, so that delayed ACKs make it faster than the paper's.
 */
#include "cc.h"

#define BETA 819
#define BETA_OF 1024
#define SAME_WINDOW_US 31250	/* the search is asked again after this long at the latest */
#define ONE_ACK_X16 16
#define FIRST_RATIO_X16 (2 * ONE_ACK_X16)

struct tl_bic {
	__u64 update_us;	/* when the search was asked last */
	__u32 count;		/* packets acknowledged per packet of growth */
	__u32 max_cwnd;		/* where the window fell from; 0: no loss yet */
	__u32 update_cwnd;	/* for which the search was asked */
	__u32 ratio_x16;	/* packets per ACK */
	__u8 searching;		/* since the last loss */
};

TL_SHOW(struct tl_bic);

static __always_inline void reset(struct tl_bic *ca)
{
	ca->update_us = 0;
	ca->count = 0;
	ca->max_cwnd = 0;
	ca->update_cwnd = 0;
	ca->searching = 0;
	ca->ratio_x16 = FIRST_RATIO_X16;
}

SEC("struct_ops")
void BPF_PROG(tl_bic_init, struct sock *sk)
{
	reset(TL_STATE(struct tl_bic, sk));
	TL_SIGN(sk);
}

static __always_inline void update(struct tcp_sock *tp, struct tl_bic *ca)
{
	__u32 cwnd = tp->snd_cwnd, count;
	__u64 now_us = tp->tcp_mstamp;

	if (ca->update_cwnd == cwnd && now_us - ca->update_us <= SAME_WINDOW_US)
		return;
	ca->update_cwnd = cwnd;
	ca->update_us = now_us;
	ca->searching = 1;
	count = tl_bic_count(cwnd, ca->max_cwnd);
	if (cwnd > TL_BIC_LOW_WINDOW) {
		if (!ca->max_cwnd) /* before the first loss: at least 5 % per round trip */
			count = tl_min(count, 20U);
		count = tl_max(count * ONE_ACK_X16 / ca->ratio_x16, 1U);
	}
	ca->count = count;
}

SEC("struct_ops")
void BPF_PROG(tl_bic_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_bic *ca = TL_STATE(struct tl_bic, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	acked = tl_beyond_slow_start(tp, acked);
	if (!acked)
		return;
	update(tp, ca);
	tcp_cong_avoid_ai(tp, ca->count, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_bic_ssthresh, struct sock *sk)
{
	struct tl_bic *ca = TL_STATE(struct tl_bic, sk);
	__u32 cwnd = tl_tcp(sk)->snd_cwnd;

	ca->searching = 0;
	ca->max_cwnd = tl_converge(cwnd, ca->max_cwnd, BETA, BETA_OF);
	if (cwnd <= TL_BIC_LOW_WINDOW)
		return tl_decrease(cwnd, 1, 2);
	return tl_decrease(cwnd, BETA, BETA_OF);
}

SEC("struct_ops")
void BPF_PROG(tl_bic_set_state, struct sock *sk, __u8 state)
{
	if (state == TCP_CA_Loss)
		reset(TL_STATE(struct tl_bic, sk));
}

/* ACKs while nothing is lost show how many packets one stands for. */
SEC("struct_ops")
void BPF_PROG(tl_bic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tl_bic *ca = TL_STATE(struct tl_bic, sk);

	if (tl_ca_state(sk) == TCP_CA_Open)
		ca->ratio_x16 += sample->pkts_acked - (ca->ratio_x16 >> 4);
}

TL_UNDO(tl_bic)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_bic = {
	.init		= (void *)tl_bic_init,
	.ssthresh	= (void *)tl_bic_ssthresh,
	.cong_avoid	= (void *)tl_bic_cong_avoid,
	.set_state	= (void *)tl_bic_set_state,
	.pkts_acked	= (void *)tl_bic_pkts_acked,
	.undo_cwnd	= (void *)tl_bic_undo_cwnd,
	.name		= "tl_bic",
};
