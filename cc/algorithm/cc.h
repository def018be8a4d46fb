/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the algorithms share. Windows are in packets, times in microseconds unless a name says otherwise. There are no
 * floats and no signed divisions here: fixed point, with the scale in the name (_x128 is a value times 128).
 */
#pragma once
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "math.h"

#define TL_MIN_CWND 2 /* packets: the least that any algorithm leaves after a loss */
#define TL_INFINITE_SSTHRESH 0x7fffffff
#define TL_USEC_PER_MSEC 1000
#define TL_USEC_PER_SEC 1000000

/* The kernel's own, the same on all kernels since 6.1: slow start up to ssthresh, and 1 packet more per w acknowledged. */
extern __u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, __u32 w, __u32 acked) __ksym;

static __always_inline struct tcp_sock *tl_tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* The algorithm's own state: at most 104 bytes, zeroed by nobody but the algorithm. */
#define TL_STATE(type, sk)                                                                                             \
	({                                                                                                             \
		_Static_assert(sizeof(type) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv),               \
			       "the state does not fit a socket");                                                     \
		(type *)((struct inet_connection_sock *)(sk))->icsk_ca_priv;                                           \
	})

/* Has the state's fields described in the object, by which `trunkline flows` shows them. Nobody uses the variable. */
#define TL_SHOW(type) const type tl_state SEC("tl_shown") __attribute__((used)) = {}

static __always_inline __u8 tl_ca_state(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_state);
}

static __always_inline bool tl_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* A window that the sender did not fill must not grow; slow start may go to twice what was in flight. */
static __always_inline bool tl_is_cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tl_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* What is left after a loss of 1 - keep/of of the window. */
static __always_inline __u32 tl_decrease(__u32 cwnd, __u32 keep, __u32 of)
{
	return tl_max((__u32)((__u64)cwnd * keep / of), TL_MIN_CWND);
}

/* After a reduction that was no loss at all: the window before it. */
static __always_inline __u32 tl_undo_cwnd(struct sock *sk)
{
	return tl_max(tl_tcp(sk)->snd_cwnd, tl_tcp(sk)->prior_cwnd);
}

/* Slow start, then one packet per window: what Reno does, and others where they have nothing better. */
static __always_inline void tl_reno_avoid(struct tcp_sock *tp, __u32 acked)
{
	if (tl_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
