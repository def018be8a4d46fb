/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rules of sockets: finds the rule of a connection by its other end and sets what the rule asks for. */
#pragma once
#include "maps.h"
#include "lookup.h"
#include "telemetry.h"
#include "window.h"

/* The kernel's numbers; its own headers for them clash with <linux/bpf.h>. */
#define TL_SO_SNDBUF 7

/* Containers in other namespaces are not ours to touch, though their cgroups may lie below the instance's. */
static __always_inline bool tl_our_netns(struct bpf_sock_ops *ctx, const struct tl_agent *agent)
{
	return agent->netns_cookie && bpf_get_netns_cookie(ctx) == agent->netns_cookie;
}

/* Says whether anything was to be set. */
static __always_inline bool tl_set_congestion(struct bpf_sock_ops *ctx, struct tl_rule *rule, struct tl_flow *flow)
{
	if (rule->auto_congestion) {
		if (!tl_is_routed(&flow->remote_addr))
			return false;
		flow->auto_congestion = 1;
		if (tl_choice_set(ctx, flow, false))
			return true;
	}
	if (!rule->congestion[0])
		return false;
	flow->congestion_rc = bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, rule->congestion,
					     sizeof(rule->congestion));
	return true;
}

static __always_inline void tl_set_options(struct bpf_sock_ops *ctx, struct tl_rule *rule, struct tl_flow *flow)
{
	__u32 pacing = rule->pacing_Bps;
	int sndbuf = rule->sndbuf_bytes;

	if (tl_set_congestion(ctx, rule, flow))
		flow->early_congestion = !flow->passive && !flow->congestion_rc;
	if (sndbuf)
		bpf_setsockopt(ctx, TL_SOL_SOCKET, TL_SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	if (pacing)
		bpf_setsockopt(ctx, TL_SOL_SOCKET, TL_SO_MAX_PACING_RATE, &pacing, sizeof(pacing));
}

static __always_inline void tl_ends(struct bpf_sock_ops *ctx, struct tl_flow *flow)
{
	/* Read one by one through volatile: clang would merge the reads into a context pointer the verifier refuses. */
	volatile struct bpf_sock_ops *v = ctx;
	__u32 r0, r1, r2, r3, l0, l1, l2, l3;

	flow->local_port = v->local_port;
	flow->remote_port = bpf_ntohl(v->remote_port);
	r3 = v->remote_ip4;
	l3 = v->local_ip4;
	flow->remote_addr = tl_addr4(r3);
	flow->local_addr = tl_addr4(l3);
	if (v->family == TL_AF_INET)
		return;
	r0 = v->remote_ip6[0];
	r1 = v->remote_ip6[1];
	r2 = v->remote_ip6[2];
	r3 = v->remote_ip6[3];
	if (!r0 && !r1 && r2 == TL_MAPPED_WORD)
		return; /* IPv4 through an IPv6 socket: the IPv4 fields are filled too */
	flow->remote_addr = tl_addr6(r0, r1, r2, r3);
	l0 = v->local_ip6[0];
	l1 = v->local_ip6[1];
	l2 = v->local_ip6[2];
	l3 = v->local_ip6[3];
	flow->local_addr = tl_addr6(l0, l1, l2, l3);
}

/* A connection that a rule covers: its options, and the class of its marks. */
static __always_inline void tl_rule_begin(struct bpf_sock_ops *ctx, struct tl_sock *st, struct tl_rule *rule,
					  struct tl_flow *flow)
{
	st->rule_id = rule->rule_id;
	st->priority = rule->priority;
	flow->kind = TL_FLOW_PLAIN;
	flow->path_bits = rule->path_bits;
	tl_set_options(ctx, rule, flow);
}

/* One of the agent's own: the engine sets its options, tl_own says what it carries. */
static __always_inline void tl_own_begin(struct tl_sock *st, bool leg, struct tl_flow *flow)
{
	st->own = 1;
	st->rule_id = 0;
	st->priority = TL_PRIORITY_OFF;
	flow->kind = leg ? TL_FLOW_LEG : TL_FLOW_DIALLED;
	if (leg)
		flow->path_bits = tl_is_mapped(&flow->remote_addr) ? 96 + 24 : 48;
}

/* An application's connection to the engine: loopback needs no tuning, people want to see where it goes. */
static __always_inline void tl_steered_begin(const struct tl_sock *st, struct tl_flow *flow)
{
	flow->kind = TL_FLOW_STEERED;
	flow->remote_addr = st->orig_addr;
	flow->remote_port = st->orig_port;
}

/* Called when a connection begins: before its SYN, or when an incoming one is established. */
static __always_inline void tl_rules_begin(struct bpf_sock_ops *ctx, const struct tl_agent *agent, bool passive)
{
	struct bpf_sock *sk = ctx->sk;
	struct tl_flow flow = { .passive = passive };
	struct tl_rule *rule = 0;
	struct tl_own *own = 0;
	struct tl_sock *st;
	bool leg = false;
	__u64 cookie;

	if (!sk || !tl_our_netns(ctx, agent))
		return;
	tl_ends(ctx, &flow);
	if (passive && tl_is_loopback(&flow.local_addr) &&
	    (flow.local_port == agent->engine_port4 || flow.local_port == agent->engine_port6))
		return; /* the engine's end of a steered connection: the application's end is the one shown */
	cookie = bpf_get_socket_cookie(ctx);
	st = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (passive) {
		leg = agent->peer_port && flow.local_port == agent->peer_port;
	} else {
		own = bpf_map_lookup_elem(&tl_own, &cookie);
		leg = own && own->leg;
	}
	if (!own && !leg && !(st && st->steered)) {
		rule = tl_find_rule(&flow.remote_addr, passive ? flow.local_port : flow.remote_port);
		if (!rule) {
			if (st) /* connects again, elsewhere */
				st->rule_id = st->priority = 0;
			return;
		}
	}
	if (!st)
		st = bpf_sk_storage_get(&tl_sock, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!st)
		return;
	if (own || leg)
		tl_own_begin(st, leg, &flow);
	else if (rule)
		tl_rule_begin(ctx, st, rule, &flow);
	else
		tl_steered_begin(st, &flow);
	tl_flow_begin(ctx, cookie, st, &flow);
}

/* The other end of a connection that comes in asks for its initial window: 0 is no opinion. */
__noinline int tl_rules_initial(struct bpf_sock_ops *ctx)
{
	struct tl_flow ends = {};
	struct tl_agent *agent;
	__u32 zero = 0;

	agent = bpf_map_lookup_elem(&tl_agent, &zero);
	if (!agent || ctx->is_fullsock || !tl_our_netns(ctx, agent) || ctx->local_port == agent->peer_port)
		return 0;
	tl_ends(ctx, &ends);
	return tl_window_reply(ctx, &ends.remote_addr);
}
