/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What several hooks ask of the maps: the rule of a flow, and small help with 16-byte addresses. */
#pragma once
#include <stdbool.h>
#include "maps.h"

#define TL_AF_INET 2
#define TL_AF_INET6 10

/* ::ffff:0:0/96: the last word of the prefix, as it lies in memory. */
#define TL_MAPPED_WORD bpf_htonl(0x0000ffff)

/* An address as four words in network order. Maps hold bytes; the stack copy keeps both views aligned. */
union tl_words {
	struct tl_addr a;
	__u32 w[4];
};

static __always_inline struct tl_addr tl_addr4(__u32 addr_be)
{
	union tl_words u = { .w = { 0, 0, TL_MAPPED_WORD, addr_be } };

	return u.a;
}

static __always_inline struct tl_addr tl_addr6(__u32 w0, __u32 w1, __u32 w2, __u32 w3)
{
	union tl_words u = { .w = { w0, w1, w2, w3 } };

	return u.a;
}

static __always_inline __u32 tl_word(const struct tl_addr *a, int i)
{
	union tl_words u;

	__builtin_memcpy(&u, a, sizeof(u));
	return u.w[i & 3];
}

static __always_inline bool tl_is_mapped(const struct tl_addr *a)
{
	return !tl_word(a, 0) && !tl_word(a, 1) && tl_word(a, 2) == TL_MAPPED_WORD;
}

static __always_inline bool tl_is_zero(const struct tl_addr *a)
{
	return !(tl_word(a, 0) | tl_word(a, 1) | tl_word(a, 2) | tl_word(a, 3));
}

/* Any address of 127.0.0.0/8, as IPv4 or mapped, or ::1. */
static __always_inline bool tl_is_loopback(const struct tl_addr *a)
{
	if (tl_is_mapped(a))
		return (tl_word(a, 3) & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return !(tl_word(a, 0) | tl_word(a, 1) | tl_word(a, 2)) && tl_word(a, 3) == bpf_htonl(1);
}

/*
 * The rule of a flow: remote is the other end, port the service's port (remote of outgoing, local of incoming
 * connections). The loader has expanded what narrower prefixes inherit, so the longest prefix decides alone.
 */
static __always_inline struct tl_rule *tl_find_rule(const struct tl_addr *remote, __u16 port)
{
	struct tl_prefix prefix = { .prefixlen = 128, .addr = *remote };
	struct tl_class_port key = {};
	struct tl_rule *rule;
	__u32 *class_id;

	class_id = bpf_map_lookup_elem(&tl_class, &prefix);
	if (!class_id)
		return 0;
	key.class_id = *class_id;
	key.port = port;
	rule = bpf_map_lookup_elem(&tl_rule, &key);
	if (rule)
		return rule;
	key.port = 0;
	return bpf_map_lookup_elem(&tl_rule, &key);
}

/* The path of a flow: the prefix its other end lies in, and the peer there. */
static __always_inline struct tl_path_key tl_path_key(const struct tl_flow *flow)
{
	struct tl_path_key key = { .prefix_bits = flow->path_bits, .peer_id = flow->peer_id };
	union tl_words u;

	__builtin_memcpy(&u, &flow->remote_addr, sizeof(u));
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__s32 keep = (__s32)flow->path_bits - 32 * i;

		if (keep <= 0)
			u.w[i] = 0;
		else if (keep < 32)
			u.w[i] &= bpf_htonl(~0U << (32 - keep));
	}
	key.prefix = u.a;
	return key;
}

/* A leg's traffic counts for a path once the leg carries a flow of a known peer; a flow counts from its first byte. */
static __always_inline bool tl_has_path(const struct tl_flow *flow)
{
	return flow->path_bits && (flow->kind != TL_FLOW_LEG || flow->peer_id);
}

/* Counts a reason; codes beyond the table are nobody's. */
static __always_inline void tl_count_reason(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&tl_reason, &reason);

	if (n)
		(*n)++;
}
