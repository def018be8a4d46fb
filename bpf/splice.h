/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sockmap fast path's part in sockops: enters both ends of a steered connection into their maps. Compiled a second
 * time with TL_NO_SPLICE it is empty, for kernels that have no such maps.
 */
#pragma once
#include "lookup.h"

#ifdef TL_NO_SPLICE

static __always_inline void tl_splice_sockops(struct bpf_sock_ops *ctx)
{
}

#else

#include "splice_maps.h"

/* The application's end, when the engine has answered and before it can have written anything. */
static __always_inline void tl_splice_app(struct bpf_sock_ops *ctx)
{
	volatile struct bpf_sock_ops *v = ctx;
	__u32 family = v->family, ip4 = v->local_ip4, syn_data = v->data_segs_out;
	__u32 a0 = v->local_ip6[0], a1 = v->local_ip6[1], a2 = v->local_ip6[2], a3 = v->local_ip6[3];
	struct tl_splice_key key = {
		.port = v->local_port,
		.engine_port = bpf_ntohl(v->remote_port),
	};
	struct bpf_sock *sk = ctx->sk;
	struct tl_splice_id id = { .seq = v->snd_nxt };
	struct tl_splice_count *n;
	struct tl_rule *rule;
	struct tl_sock *s;

	if (!sk || syn_data) /* what the SYN carried is in the TCP queue already */
		return;
	s = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (!s || !s->steered)
		return;
	rule = tl_find_rule(&s->orig_addr, s->orig_port);
	if (!rule || !rule->splice || !tl_splice_fit(sk))
		return;
	key.addr = family == TL_AF_INET ? tl_addr4(ip4) : tl_addr6(a0, a1, a2, a3);
	id.cookie = bpf_get_socket_cookie(ctx);
	s->splice_bytes = 0;
	s->splice_msgs = 0;
	s->splice_cookie = id.cookie;
	s->splice_seq = id.seq;
	/* An entry that is there already is another socket's: never touch it, this one stays plain. */
	if (bpf_sock_hash_update(ctx, &tl_apps, &key, BPF_NOEXIST))
		return;
	s->splice = TL_SPLICE_ON;
	bpf_map_update_elem(&tl_due, &key, &id, BPF_ANY);
	n = tl_splice_counts();
	if (n)
		n->entered++;
}

/*
 * The engine's end. It comes after the application's, whose last ACK of the handshake brings it here; so only
 * connections whose application's end is in take the engine's socket off the plain path.
 */
static __always_inline void tl_splice_engine(struct bpf_sock_ops *ctx)
{
	volatile struct bpf_sock_ops *v = ctx;
	__u32 family = v->family, local4 = v->local_ip4, remote4 = v->remote_ip4, local_port = v->local_port;
	__u32 l0 = v->local_ip6[0], l1 = v->local_ip6[1], l2 = v->local_ip6[2], l3 = v->local_ip6[3];
	__u32 r0 = v->remote_ip6[0], r1 = v->remote_ip6[1], r2 = v->remote_ip6[2], r3 = v->remote_ip6[3];
	struct tl_splice_key key = {
		.port = bpf_ntohl(v->remote_port),
		.engine_port = local_port,
	};
	bool v4 = family == TL_AF_INET;
	struct tl_splice_id *due, id;
	struct tl_agent *agent;
	struct tl_addr local;
	__u32 zero = 0;

	agent = bpf_map_lookup_elem(&tl_agent, &zero);
	if (!agent || !local_port || local_port != (v4 ? agent->engine_port4 : agent->engine_port6))
		return;
	local = v4 ? tl_addr4(local4) : tl_addr6(l0, l1, l2, l3);
	if (!tl_is_loopback(&local) || bpf_get_netns_cookie(ctx) != agent->netns_cookie)
		return;
	key.addr = v4 ? tl_addr4(remote4) : tl_addr6(r0, r1, r2, r3);
	due = bpf_map_lookup_elem(&tl_due, &key);
	if (!due || due->seq != v->rcv_nxt)
		return;
	id = *due;
	bpf_map_delete_elem(&tl_due, &key);
	bpf_sock_hash_update(ctx, &tl_engs, &id, BPF_NOEXIST);
}

static __always_inline void tl_splice_sockops(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		tl_splice_app(ctx);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		tl_splice_engine(ctx);
		break;
	}
}

#endif
