/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Reads the congestion control of each TCP socket of a network namespace, with the algorithm's own state. An iterator: it
 * runs only while somebody reads it, and touches nothing.
 */
#include "../algorithm/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define TL_NAME_MAX 16
#define TL_STATE_BYTES 104

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	atomic64_t skc_cookie;
	volatile __u8 skc_state;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct tcp_congestion_ops___shown {
	char name[TL_NAME_MAX];
};

struct inet_connection_sock___shown {
	const struct tcp_congestion_ops___shown *icsk_ca_ops;
	__u64 icsk_ca_priv[13];
};

#pragma clang attribute pop

/* One socket. The state is the algorithm's: what it means stands in its object's types. */
struct tl_inside {
	__u64 cookie; /* 0: nobody has asked for it, so no rule covers the socket */
	__u32 cwnd;   /* packets */
	__u32 ssthresh;
	char name[TL_NAME_MAX];
	__u8 state[TL_STATE_BYTES];
};

const struct tl_inside *tl_inside_type __attribute__((unused));

const volatile __u8 tl_ours_only = 0; /* 1: only algorithms whose names begin with tl_ */

#define TCP_LISTEN 10

SEC("iter/tcp")
int tl_insides(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct inet_connection_sock___shown *icsk;
	struct tl_inside in = {};
	struct tcp_sock *tp;

	if (!skc || skc->skc_state == TCP_LISTEN)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc); /* not of one that is only being made, or waits for its end */
	if (!tp)
		return 0;
	icsk = (void *)tp;
	BPF_CORE_READ_STR_INTO(&in.name, icsk, icsk_ca_ops, name);
	if (tl_ours_only && (in.name[0] != 't' || in.name[1] != 'l' || in.name[2] != '_'))
		return 0;
	bpf_core_read(&in.state, sizeof(in.state), &icsk->icsk_ca_priv);
	in.cookie = skc->skc_cookie.counter;
	in.cwnd = tp->snd_cwnd;
	in.ssthresh = tp->snd_ssthresh;
	bpf_seq_write(ctx->meta->seq, &in, sizeof(in));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
