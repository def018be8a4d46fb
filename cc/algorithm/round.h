/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Round-trip times by rounds: what Vegas and those that follow it look at. */
#pragma once
#include "cc.h"

#define TL_NO_RTT_US 0x7fffffff

struct tl_round {
	__u32 base_rtt_us; /* the least ever: the path without a queue; TL_NO_RTT_US: none yet */
	__u32 rtt_us;	   /* the least of this round */
	__u32 samples;	   /* of this round */
	__u32 end;	   /* the round ends when this is acknowledged */
};

static __always_inline void tl_round_begin(struct tl_round *r, const struct tcp_sock *tp)
{
	r->end = tp->snd_nxt;
	r->samples = 0;
	r->rtt_us = TL_NO_RTT_US;
}

static __always_inline void tl_round_init(struct tl_round *r, const struct tcp_sock *tp)
{
	r->base_rtt_us = TL_NO_RTT_US;
	tl_round_begin(r, tp);
}

/* Never 0: what divides by a round-trip time need not ask. */
static __always_inline void tl_round_sample(struct tl_round *r, __s32 rtt_us)
{
	__u32 rtt = rtt_us + 1;

	if (rtt_us < 0)
		return;
	r->base_rtt_us = tl_min(r->base_rtt_us, rtt);
	r->rtt_us = tl_min(r->rtt_us, rtt);
	r->samples++;
}

/* Callbacks of those that keep rounds in their state as `round`. */
#define TL_SAMPLE_ROUNDS(algorithm)                                                                                    \
	SEC("struct_ops")                                                                                              \
	void BPF_PROG(algorithm##_pkts_acked, struct sock *sk, const struct ack_sample *sample)                        \
	{                                                                                                              \
		tl_round_sample(&TL_STATE(struct algorithm, sk)->round, sample->rtt_us);                               \
	}

/* After idle time the path may be another: it begins anew. */
#define TL_AFTER_IDLE(algorithm, restart)                                                                              \
	SEC("struct_ops")                                                                                              \
	void BPF_PROG(algorithm##_cwnd_event, struct sock *sk, __u32 event)                                            \
	{                                                                                                              \
		if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)                                      \
			restart(sk);                                                                                   \
	}                                                                                                              \
                                                                                                                       \
	SEC("struct_ops")                                                                                              \
	void BPF_PROG(algorithm##_tx_start, struct sock *sk)                                                           \
	{                                                                                                              \
		restart(sk);                                                                                           \
	}
