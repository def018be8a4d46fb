/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Steering's part in sockops: binds the application's end of a steered connection to its original destination. */
#pragma once
#include "lookup.h"

/* All fields are read before the branch: reads merged behind it go through a changed pointer, which the verifier refuses. */
static __always_inline struct tl_endpoint tl_local_end(struct bpf_sock_ops *ctx)
{
	volatile struct bpf_sock_ops *c = ctx;
	__u32 family = c->family, ip4 = c->local_ip4, port = c->local_port;
	__u32 w0 = c->local_ip6[0], w1 = c->local_ip6[1], w2 = c->local_ip6[2], w3 = c->local_ip6[3];
	struct tl_endpoint e = { .port = port };

	e.addr = family == TL_AF_INET ? tl_addr4(ip4) : tl_addr6(w0, w1, w2, w3);
	return e;
}

/*
 * At CONNECT the source port is chosen and the SYN not yet sent: the engine cannot accept before this is written. With
 * TCP_FASTOPEN_CONNECT that is at the first write, by when the loader may have swept the original destination.
 */
static __always_inline void tl_steer_begin(struct bpf_sock_ops *ctx, const struct tl_sock *s)
{
	struct tl_endpoint client = tl_local_end(ctx);
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct tl_orig orig = {
		.addr = s->orig_addr, .source = s->local_addr, .rule_id = s->rule_id,
		.port = s->orig_port, .family = s->orig_family,
	};

	orig.time_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&tl_orig, &cookie, &orig, BPF_NOEXIST);
	bpf_map_update_elem(&tl_client, &client, &cookie, BPF_ANY);
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

/*
 * An application may write, close and be gone before the engine accepts, and its bytes must still arrive: what the engine
 * has not taken yet goes only if the handshake failed. The loader sweeps what is never taken.
 */
static __always_inline void tl_steer_end(struct bpf_sock_ops *ctx, __u32 from)
{
	struct tl_endpoint client = tl_local_end(ctx);
	__u64 cookie = bpf_get_socket_cookie(ctx);
	__u64 *owner;

	if (from == BPF_TCP_SYN_SENT)
		bpf_map_delete_elem(&tl_orig, &cookie);
	else if (bpf_map_lookup_elem(&tl_orig, &cookie))
		return;
	owner = bpf_map_lookup_elem(&tl_client, &client);
	if (owner && *owner == cookie)
		bpf_map_delete_elem(&tl_client, &client);
}

static __always_inline void tl_steer_sockops(struct bpf_sock_ops *ctx)
{
	__u32 op = ctx->op, from = ctx->args[0], to = ctx->args[1];
	struct bpf_sock *sk = ctx->sk;
	struct tl_sock *s;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_STATE_CB)
		return;
	if (!sk)
		return;
	s = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (!s || !s->steered)
		return;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB)
		tl_steer_begin(ctx, s);
	else if (to == BPF_TCP_CLOSE)
		tl_steer_end(ctx, from);
}
