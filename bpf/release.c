/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Takes what a reservation gave from sockets that are too quiet to notice its end themselves; at the end of the agent, from all.
 * An iterator over the TCP sockets of a network namespace: it runs only while somebody reads it.
 */
#include "window.h"
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct sock_common {
	volatile __u8 skc_state;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct sock {
	unsigned long sk_max_pacing_rate;
};

#pragma clang attribute pop

/*
 * TL_RELEASE_ENDED: of flows whose reservation is over. TL_RELEASE_ALL: of all flows of this instance, for good.
 * TL_RELEASE_ORPHANS: of sockets that no instance knows and whose rate is signed: their agent was killed.
 */
enum tl_release_what { TL_RELEASE_ENDED = 0, TL_RELEASE_ALL = 1, TL_RELEASE_ORPHANS = 2 };

const volatile __u32 tl_release_what = TL_RELEASE_ENDED;
const volatile __u32 tl_release_sign = 0; /* the low byte of the rates that the instance sets */

/* Nothing of it is left, and the algorithm begins anew: nobody will look at the socket again. */
static __always_inline void tl_release_now(void *sk)
{
	char name[TL_CC_NAME_MAX] = {}, other[TL_CC_NAME_MAX] = "reno";
	int infinite = TL_TCP_INFINITE_SSTHRESH;
	__u32 none = TL_PACE_NONE;

	bpf_setsockopt(sk, TL_SOL_SOCKET, TL_SO_MAX_PACING_RATE, &none, sizeof(none));
	if (!bpf_getsockopt(sk, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name))) {
		bpf_setsockopt(sk, TL_IPPROTO_TCP, TL_TCP_CONGESTION, other, sizeof(other));
		bpf_setsockopt(sk, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name));
	}
	bpf_setsockopt(sk, TL_IPPROTO_TCP, TL_TCP_BPF_SNDCWND_CLAMP, &infinite, sizeof(infinite));
}

static __always_inline bool tl_release_over(const struct tl_reserved_sk *st)
{
	__u32 slot = st->slot;
	struct tl_reserved *r;

	r = bpf_map_lookup_elem(&tl_reserved, &slot);
	return !r || r->generation != st->generation || (r->until_ns && bpf_ktime_get_ns() >= r->until_ns);
}

SEC("iter/tcp")
int tl_release(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tl_reserved_sk *st;
	struct tcp_sock *tp;
	unsigned long rate;

	if (!skc || skc->skc_state == BPF_TCP_LISTEN)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	st = bpf_sk_storage_get(&tl_reserved_sk, tp, 0, 0);
	switch (tl_release_what) {
	case TL_RELEASE_ENDED:
		if (st && st->state == TL_RES_IN_FORCE && tl_release_over(st))
			tl_reserved_leave(tp, st);
		break;
	case TL_RELEASE_ALL:
		if (st && (st->state == TL_RES_IN_FORCE || st->state == TL_RES_LEAVING)) {
			tl_release_now(tp);
			st->state = TL_RES_NONE;
		}
		break;
	case TL_RELEASE_ORPHANS:
		rate = ((struct sock *)tp)->sk_max_pacing_rate;
		if (!st && rate < TL_PACE_NONE && (rate & 0xff) == tl_release_sign)
			tl_release_now(tp);
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
