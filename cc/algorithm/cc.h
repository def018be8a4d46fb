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
#include "formulas.h"

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

/* The algorithm's own state: at most 100 bytes, zeroed by nobody but the algorithm. */
#define TL_STATE_BYTES 100
#define TL_STATE(type, sk)                                                                                             \
	({                                                                                                             \
		_Static_assert(sizeof(type) <= TL_STATE_BYTES, "the state does not fit a socket");                     \
		(type *)((struct inet_connection_sock *)(sk))->icsk_ca_priv;                                           \
	})

/*
 * Has the state's fields described in the object, by which `trunkline flows` shows them. Nobody uses the variable. A flow
 * keeps the algorithm it began with when another version comes, so what describes the fields is kept with the state: a
 * number made from their names and places by whoever loads the algorithm.
 */
#define TL_SHOW(type)                                                                                                  \
	const type tl_state SEC("tl_shown") __attribute__((used)) = {};                                                \
	const volatile __u32 tl_layout = 0

/* To be called by init. */
#define TL_SIGN(sk) (((__u32 *)((struct inet_connection_sock *)(sk))->icsk_ca_priv)[TL_STATE_BYTES / 4] = tl_layout)

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

/* What slow start leaves of the acknowledged packets for growth beyond it; 0 also where the window must not grow. */
static __always_inline __u32 tl_beyond_slow_start(struct tcp_sock *tp, __u32 acked)
{
	if (!tl_is_cwnd_limited(tp))
		return 0;
	return tl_in_slow_start(tp) ? tcp_slow_start(tp, acked) : acked;
}

/* Callbacks that many have alike. */
#define TL_UNDO(algorithm)                                                                                             \
	SEC("struct_ops")                                                                                              \
	__u32 BPF_PROG(algorithm##_undo_cwnd, struct sock *sk)                                                         \
	{                                                                                                              \
		return tl_undo_cwnd(sk);                                                                               \
	}

#define TL_HALVE(algorithm)                                                                                            \
	SEC("struct_ops")                                                                                              \
	__u32 BPF_PROG(algorithm##_ssthresh, struct sock *sk)                                                          \
	{                                                                                                              \
		return tl_decrease(tl_tcp(sk)->snd_cwnd, 1, 2);                                                        \
	}

#define TL_GROW_AS_RENO(algorithm)                                                                                     \
	SEC("struct_ops")                                                                                              \
	void BPF_PROG(algorithm##_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)                                 \
	{                                                                                                              \
		if (tl_is_cwnd_limited(tl_tcp(sk)))                                                                    \
			tl_reno_avoid(tl_tcp(sk), acked);                                                              \
	}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
