/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Steering: connect() to a destination that a dedup rule names goes to the engine's listener on loopback instead, and
 * getpeername() and getsockname() go on showing what a direct connection would. Whatever speaks against it leaves the
 * connection alone, with a numbered reason; there is no way for this program to refuse one.
 */
#include "lookup.h"

#define TL_SOCK_STREAM 1
#define TL_IPPROTO_TCP 6
#define TL_IPPROTO_MPTCP 262
#define TL_LOOPBACK4 bpf_htonl(0x7f000001)
#define TL_LEAVE 1 /* what every program here returns: go on */
#define TL_CGROUP_DEPTH 16

struct tl_target {
	struct tl_addr addr;
	__u16 port;
	__u16 family; /* of the destination: a mapped one is AF_INET, whatever the socket is */
	__u8 sock6;   /* 1: an AF_INET6 socket */
};

/* The local address the socket is bound to; all zero: none yet. */
static __always_inline struct tl_addr tl_bound(const struct tl_target *t, struct bpf_sock *sk)
{
	volatile struct bpf_sock *v = sk;
	__u32 w0 = v->src_ip6[0], w1 = v->src_ip6[1], w2 = v->src_ip6[2], w3 = v->src_ip6[3];
	__u32 ip4 = v->src_ip4;
	struct tl_addr none = {};

	if (t->sock6) /* the unspecified address may be mapped */
		return w0 || w1 || w3 ? tl_addr6(w0, w1, w2, w3) : none;
	return ip4 ? tl_addr4(ip4) : none;
}

static __always_inline bool tl_excluded(__u32 rule_id)
{
	struct tl_exclude_key key = { .rule_id = rule_id, .kind = TL_EXCLUDE_USER };

	key.id = (__u32)bpf_get_current_uid_gid();
	if (bpf_map_lookup_elem(&tl_exclude, &key))
		return true;
	key.kind = TL_EXCLUDE_CGROUP;
	key.id = bpf_get_current_cgroup_id();
	if (bpf_map_lookup_elem(&tl_exclude, &key))
		return true;
	for (int level = 0; level < TL_CGROUP_DEPTH; level++) {
		key.id = bpf_get_current_ancestor_cgroup_id(level);
		if (!key.id)
			break;
		if (bpf_map_lookup_elem(&tl_exclude, &key))
			return true;
	}
	return false;
}

static __always_inline __u32 tl_bypassed(const struct tl_target *t)
{
	struct tl_endpoint key = { .addr = t->addr, .port = t->port };
	struct tl_bypass *b = bpf_map_lookup_elem(&tl_bypass, &key);

	if (!b || (b->until_ns && b->until_ns <= bpf_ktime_get_ns()))
		return TL_NONE;
	return b->reason;
}

/* What the routing table says of the destination; source becomes the address a direct connection would leave from. */
static __always_inline __u32 tl_near(const struct tl_target *t, struct tl_addr *source)
{
	struct tl_prefix key = { .prefixlen = 128, .addr = t->addr };
	struct tl_dest *d;

	/* The unspecified address means this host. */
	if (tl_is_loopback(&t->addr) || tl_is_zero(&t->addr) || (tl_is_mapped(&t->addr) && !tl_word(&t->addr, 3)))
		return TL_LOCAL;
	d = bpf_map_lookup_elem(&tl_dest, &key);
	if (!d)
		return TL_NONE;
	if (d->where == TL_WHERE_LOCAL)
		return TL_LOCAL;
	if (d->where == TL_WHERE_ONLINK)
		return TL_ON_LINK;
	*source = d->source;
	return TL_NONE;
}

/* The look-up covers an engine that is gone; the heartbeat, asked before, one that hangs. */
static __always_inline bool tl_listening(struct bpf_sock_addr *ctx, bool v4, __u16 port)
{
	struct bpf_sock_tuple tuple = {};
	volatile struct bpf_sock *v;
	__u32 state, ip4, ip6;
	struct bpf_sock *sk;

	if (v4) {
		tuple.ipv4.saddr = TL_LOOPBACK4;
		tuple.ipv4.daddr = TL_LOOPBACK4;
		tuple.ipv4.dport = bpf_htons(port);
		sk = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		tuple.ipv6.saddr[3] = bpf_htonl(1);
		tuple.ipv6.daddr[3] = bpf_htonl(1);
		tuple.ipv6.dport = bpf_htons(port);
		sk = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return false;
	v = sk; /* reads merged behind a branch would go through a changed pointer, which the verifier refuses */
	state = v->state;
	ip4 = v->src_ip4;
	ip6 = v->src_ip6[3];
	bpf_sk_release(sk);
	/* A listener on all addresses at the same port is someone else's. */
	return state == BPF_TCP_LISTEN && (v4 ? ip4 == TL_LOOPBACK4 : ip6 == bpf_htonl(1));
}

/* Whether the engine is there to take the connection, and at which port. */
static __always_inline __u32 tl_engine(struct bpf_sock_addr *ctx, const struct tl_target *t, __u32 peer_id, __u16 *port)
{
	__u32 zero = 0, *up;
	struct tl_agent *agent = bpf_map_lookup_elem(&tl_agent, &zero);
	bool v4 = t->family == TL_AF_INET;
	__u64 now = bpf_ktime_get_ns();

	if (!agent || (!agent->engine_port4 && !agent->engine_port6))
		return TL_ENGINE_NOT_ALIVE;
	if (!agent->steering)
		return TL_DRAINING;
	up = bpf_map_lookup_elem(&tl_peer, &peer_id);
	if (!up || !*up)
		return TL_PEER_DOWN;
	*port = v4 ? agent->engine_port4 : agent->engine_port6;
	if (!*port)
		return TL_FAMILY_OFF;
	if (now > agent->heartbeat_ns && now - agent->heartbeat_ns > agent->heartbeat_max_age_ns)
		return TL_ENGINE_NOT_ALIVE;
	return tl_listening(ctx, v4, *port) ? TL_NONE : TL_ENGINE_NOT_ALIVE;
}

/*
 * The hook is shown the first subflow, whose protocol is TCP, or on other kernels the MPTCP socket itself. A kernel built
 * without MPTCP does not know its type and refuses the question, hence TL_NO_MPTCP.
 */
static __always_inline bool tl_is_mptcp(struct bpf_sock_addr *ctx, struct bpf_sock *sk)
{
#ifndef TL_NO_MPTCP
	if (bpf_skc_to_mptcp_sock(sk))
		return true;
#endif
	return ctx->protocol == TL_IPPROTO_MPTCP;
}

/* Everything that speaks against steering, in the order that says most to the person who asks why. */
static __always_inline __u32 tl_decide(struct bpf_sock_addr *ctx, struct bpf_sock *sk, const struct tl_target *t,
				       struct tl_rule *rule, __u64 cookie, struct tl_addr *source, __u16 *port)
{
	__u32 zero = 0, reason;
	struct tl_agent *agent = bpf_map_lookup_elem(&tl_agent, &zero);
	struct tl_addr bound;

	if (tl_is_mptcp(ctx, sk))
		return TL_MPTCP;
	if (bpf_map_lookup_elem(&tl_own, &cookie))
		return TL_OWN_SOCKET;
	if (!agent || bpf_get_netns_cookie(ctx) != agent->netns_cookie)
		return TL_OTHER_NETNS;
	if (sk->bound_dev_if)
		return TL_BOUND_DEVICE;
	reason = tl_bypassed(t);
	if (reason)
		return reason;
	reason = tl_near(t, source);
	if (reason)
		return reason;
	bound = tl_bound(t, sk);
	if (tl_is_loopback(&bound)) /* a direct connection would fail, and so must this one */
		return TL_LOCAL;
	if (!tl_is_zero(&bound))
		*source = bound;
	if (rule->has_excludes && tl_excluded(rule->rule_id))
		return TL_EXCLUDED;
	return tl_engine(ctx, t, rule->peer_id, port);
}

/* Where the connection wanted to go, for the engine and for getpeername(). False if there is no room. */
static __always_inline bool tl_remember(struct bpf_sock *sk, const struct tl_target *t, __u32 rule_id, __u64 cookie,
					const struct tl_addr *source)
{
	struct tl_sock *s = bpf_sk_storage_get(&tl_sock, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct tl_orig orig = {
		.addr = t->addr, .source = *source, .rule_id = rule_id, .port = t->port, .family = t->family,
	};

	if (!s)
		return false;
	orig.time_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&tl_orig, &cookie, &orig, BPF_NOEXIST))
		return false;
	s->orig_addr = t->addr;
	s->local_addr = *source;
	s->rule_id = rule_id;
	s->reason = TL_NONE;
	s->orig_port = t->port;
	s->orig_family = t->family;
	s->steered = 1;
	return true;
}

/* Counts why, and keeps it with the socket for whoever lists flows. */
static __always_inline void tl_leave(struct bpf_sock *sk, __u32 rule_id, __u32 reason)
{
	struct tl_sock *s;

	tl_count_reason(reason);
	if (reason == TL_OWN_SOCKET) /* tl_own knows more */
		return;
	s = bpf_sk_storage_get(&tl_sock, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return;
	s->rule_id = rule_id;
	s->reason = reason;
}

/* A socket whose last connect() failed may connect again, to somewhere else. */
static __always_inline void tl_forget(struct bpf_sock *sk, __u64 cookie)
{
	struct tl_sock *s = bpf_sk_storage_get(&tl_sock, sk, 0, 0);

	if (!s)
		return;
	if (s->steered)
		bpf_map_delete_elem(&tl_orig, &cookie);
	s->steered = 0;
	s->splice = 0;
	s->reason = TL_NONE;
	s->rule_id = 0;
}

/* Returns the engine's port, or 0 to leave the connection alone. */
static __always_inline __u16 tl_steer(struct bpf_sock_addr *ctx, const struct tl_target *t)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct bpf_sock *sk = ctx->sk;
	struct tl_addr source = {};
	struct tl_rule *rule;
	__u16 port = 0;
	__u32 reason;

	if (!sk)
		return 0;
	tl_forget(sk, cookie);
	rule = tl_find_rule(&t->addr, t->port);
	if (!rule || !rule->peer_id)
		return 0;
	reason = tl_decide(ctx, sk, t, rule, cookie, &source, &port);
	if (!reason && !tl_remember(sk, t, rule->rule_id, cookie, &source))
		reason = TL_TABLE_FULL;
	if (!reason)
		return port;
	tl_leave(sk, rule->rule_id, reason);
	return 0;
}

/* UDP and others come through the same hooks. */
static __always_inline bool tl_is_tcp(struct bpf_sock_addr *ctx)
{
	__u32 type = ctx->type, protocol = ctx->protocol;

	return type == TL_SOCK_STREAM && (protocol == TL_IPPROTO_TCP || protocol == TL_IPPROTO_MPTCP);
}

SEC("cgroup/connect4")
int tl_connect4(struct bpf_sock_addr *ctx)
{
	__u32 ip4 = ctx->user_ip4, port_be = ctx->user_port;
	struct tl_target t = { .family = TL_AF_INET };
	__u16 port;

	if (!tl_is_tcp(ctx))
		return TL_LEAVE;
	t.addr = tl_addr4(ip4);
	t.port = bpf_ntohs(port_be);
	port = tl_steer(ctx, &t);
	if (port) {
		ctx->user_ip4 = TL_LOOPBACK4;
		ctx->user_port = bpf_htons(port);
	}
	return TL_LEAVE;
}

SEC("cgroup/connect6")
int tl_connect6(struct bpf_sock_addr *ctx)
{
	__u32 w0 = ctx->user_ip6[0], w1 = ctx->user_ip6[1], w2 = ctx->user_ip6[2], w3 = ctx->user_ip6[3];
	__u32 port_be = ctx->user_port;
	struct tl_target t = { .sock6 = 1, .family = TL_AF_INET6 };
	__u16 port;

	if (!tl_is_tcp(ctx))
		return TL_LEAVE;
	t.addr = tl_addr6(w0, w1, w2, w3);
	t.port = bpf_ntohs(port_be);
	if (tl_is_mapped(&t.addr))
		t.family = TL_AF_INET;
	port = tl_steer(ctx, &t);
	if (!port)
		return TL_LEAVE;
	if (t.family == TL_AF_INET) { /* ::ffff:127.0.0.1: the prefix is there already */
		ctx->user_ip6[3] = TL_LOOPBACK4;
	} else {
		ctx->user_ip6[0] = 0;
		ctx->user_ip6[1] = 0;
		ctx->user_ip6[2] = 0;
		ctx->user_ip6[3] = bpf_htonl(1);
	}
	ctx->user_port = bpf_htons(port);
	return TL_LEAVE;
}

/* The socket's storage, if its connection goes to the engine and the kernel's answer would give that away. */
static __always_inline struct tl_sock *tl_disguised(struct bpf_sock_addr *ctx, const struct tl_addr *answer)
{
	struct bpf_sock *sk = ctx->sk;
	struct tl_sock *s;

	if (!sk || !tl_is_loopback(answer))
		return 0;
	s = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	return s && s->steered ? s : 0;
}

static __always_inline void tl_show4(struct bpf_sock_addr *ctx, const struct tl_addr *shown)
{
	if (tl_is_mapped(shown))
		ctx->user_ip4 = tl_word(shown, 3);
}

static __always_inline void tl_show6(struct bpf_sock_addr *ctx, const struct tl_addr *shown)
{
	if (tl_is_zero(shown))
		return;
	ctx->user_ip6[0] = tl_word(shown, 0);
	ctx->user_ip6[1] = tl_word(shown, 1);
	ctx->user_ip6[2] = tl_word(shown, 2);
	ctx->user_ip6[3] = tl_word(shown, 3);
}

static __always_inline struct tl_addr tl_answer6(struct bpf_sock_addr *ctx)
{
	__u32 w0 = ctx->user_ip6[0], w1 = ctx->user_ip6[1], w2 = ctx->user_ip6[2], w3 = ctx->user_ip6[3];

	return tl_addr6(w0, w1, w2, w3);
}

SEC("cgroup/getpeername4")
int tl_getpeername4(struct bpf_sock_addr *ctx)
{
	struct tl_addr answer = tl_addr4(ctx->user_ip4);
	struct tl_sock *s = tl_disguised(ctx, &answer);

	if (s) {
		tl_show4(ctx, &s->orig_addr);
		ctx->user_port = bpf_htons(s->orig_port);
	}
	return TL_LEAVE;
}

SEC("cgroup/getpeername6")
int tl_getpeername6(struct bpf_sock_addr *ctx)
{
	struct tl_addr answer = tl_answer6(ctx);
	struct tl_sock *s = tl_disguised(ctx, &answer);

	if (s) {
		tl_show6(ctx, &s->orig_addr);
		ctx->user_port = bpf_htons(s->orig_port);
	}
	return TL_LEAVE;
}

SEC("cgroup/getsockname4")
int tl_getsockname4(struct bpf_sock_addr *ctx)
{
	struct tl_addr answer = tl_addr4(ctx->user_ip4);
	struct tl_sock *s = tl_disguised(ctx, &answer);

	if (s)
		tl_show4(ctx, &s->local_addr);
	return TL_LEAVE;
}

SEC("cgroup/getsockname6")
int tl_getsockname6(struct bpf_sock_addr *ctx)
{
	struct tl_addr answer = tl_answer6(ctx);
	struct tl_sock *s = tl_disguised(ctx, &answer);

	if (s)
		tl_show6(ctx, &s->local_addr);
	return TL_LEAVE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
