/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sockops does for flows on a reserved path while they live. */
#pragma once
#include "reserved.h"
#include "choice.h"

#define TL_LEAVE_MAX_NS 1000000000ULL

/* The congestion window has come down, or nothing is sent that could bring it down: the flow is like any other. */
__noinline int tl_reserved_left(struct bpf_sock_ops *ctx)
{
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	char name[TL_CC_NAME_MAX] = {};

	if (!st || st->state != TL_RES_LEAVING)
		return 0;
	if (ctx->snd_cwnd > 2 * TL_IW_DEFAULT && bpf_ktime_get_ns() - st->since_ns < TL_LEAVE_MAX_NS)
		return 0;
	if (!bpf_getsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name))) {
		tl_flow_anew(ctx);
		bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name));
	}
	st->state = TL_RES_WAITING;
	return 0;
}

/*
 * Looks again for the reservation of the flow's other end: it may have begun, ended, or been replaced. One that takes another's
 * place takes its flows as they are.
 */
__noinline int tl_reserved_again(struct bpf_sock_ops *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx), now_ns = bpf_ktime_get_ns();
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	struct tl_reserved *r = 0;
	struct tl_flow *flow;
	__u32 slot = 0;
	bool had;

	if (!st)
		return 0;
	had = st->state == TL_RES_IN_FORCE;
	flow = bpf_map_lookup_elem(&tl_flow, &cookie);
	if (flow)
		r = tl_reserved_for(&flow->remote_addr, now_ns, &slot);
	if (r && had && slot == st->slot && r->generation == st->generation)
		return 0;
	if (!r || !flow) {
		if (had)
			tl_reserved_leave(ctx, st);
		return 0;
	}
	if (had)
		tl_reserved_uncount(st);
	if (!tl_reserved_join(st, &flow->remote_addr))
		return 0;
	if (!had)
		st->why = TL_WHY_LATE;
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | TL_WRITE_FLAG);
	return 0;
}

static __always_inline void tl_reserved_show(struct bpf_sock_ops *ctx, const struct tl_reserved_sk *st)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct tl_flow_window w = {
		.share_Bps = st->share_Bps,
		.receive_Bps = st->receive_Bps,
		.generation = st->state == TL_RES_IN_FORCE ? st->generation : 0,
		.pacing_Bps = st->pacing_Bps,
		.initial_packets = st->initial_packets,
		.most_packets = st->cwnd_packets,
		.advertised_bytes = st->window_bytes,
		.why = st->why,
		.leaving = st->state == TL_RES_LEAVING,
	};

	bpf_map_update_elem(&tl_flow_window, &cookie, &w, BPF_ANY);
}

/*
 * Called before each segment that a flow of a reservation sends, acknowledgements too, and with each round trip: the kernel
 * asks how long the TCP options are that a program wants, and is told none.
 */
__noinline int tl_reserved_turn(struct bpf_sock_ops *ctx)
{
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	__u32 op = ctx->op, slot;
	struct tl_reserved *r;

	if (!st || st->state == TL_RES_NONE)
		return 0;
	if (op == BPF_SOCK_OPS_RTT_CB && st->state == TL_RES_LEAVING)
		tl_reserved_left(ctx);
	if (op == BPF_SOCK_OPS_RTT_CB && st->state != TL_RES_LEAVING) {
		tl_reserved_again(ctx);
	} else if (st->state == TL_RES_IN_FORCE) {
		slot = st->slot;
		r = bpf_map_lookup_elem(&tl_reserved, &slot);
		if (!r || r->generation != st->generation || (r->until_ns && bpf_ktime_get_ns() >= r->until_ns))
			tl_reserved_again(ctx);
	}
	if (st->state != TL_RES_IN_FORCE)
		return 0;
	tl_reserved_send(ctx);
	tl_reserved_receive(ctx);
	if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		tl_reserved_initial(ctx);
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | TL_WRITE_FLAG);
	}
	tl_reserved_set(ctx);
	return 0;
}

/* A leg that has taken up a flow of a rule with window: reserved: late for an initial window, its handshake was long ago. */
__noinline int tl_reserved_leg(struct bpf_sock_ops *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct tl_reserved_sk *st;
	struct bpf_sock *sk = ctx->sk;
	struct tl_flow *flow;
	struct tl_own *own;

	own = bpf_map_lookup_elem(&tl_own, &cookie);
	if (!sk || !own || !own->leg || own->window != TL_WINDOW_RESERVED)
		return 0;
	flow = bpf_map_lookup_elem(&tl_flow, &cookie);
	if (!flow || !tl_is_routed(&flow->remote_addr))
		return 0;
	st = bpf_sk_storage_get(&tl_reserved_sk, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!st)
		return 0;
	flow->window = TL_WINDOW_RESERVED;
	st->weight = (own->weight ? own->weight : 1) * TL_WEIGHT_UNIT;
	st->v6 = !tl_is_mapped(&flow->remote_addr);
	st->state = TL_RES_WAITING;
	return 0;
}

__noinline int tl_reserved_sockops(struct bpf_sock_ops *ctx)
{
	bool closes = ctx->op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == BPF_TCP_CLOSE;
	struct tl_reserved_sk *st;

	switch (ctx->op) {
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		tl_reserved_turn(ctx);
		return 0;
	case BPF_SOCK_OPS_RTT_CB:
		st = tl_reserved_of(ctx);
		if (!st || st->state == TL_RES_NONE)
			tl_reserved_leg(ctx);
		tl_reserved_turn(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		tl_reserved_turn(ctx);
		break;
	}
	st = tl_reserved_of(ctx);
	if (!st || st->state == TL_RES_NONE)
		return 0;
	if (closes) {
		if (st->state == TL_RES_IN_FORCE)
			tl_reserved_uncount(st);
		st->state = TL_RES_NONE;
		return 0;
	}
	tl_reserved_show(ctx, st);
	return 0;
}
