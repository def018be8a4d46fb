/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of each flow of a rule or of the agent, and what flows add up to for a path. */
#pragma once
#include "maps.h"
#include "lookup.h"
#include "choice.h"

#define TL_TCP_CLOSE 7
#define TL_FLOW_FLAGS (BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG)

/* A moving average with the weight 1/8 for the new sample; the first sample counts whole. */
#define TL_AVERAGE(old, sample) ((old) ? (old) - (old) / 8 + (sample) / 8 : (sample))

static __always_inline struct tl_path *tl_path_of(const struct tl_flow *flow)
{
	struct tl_path_key key = tl_path_key(flow);
	struct tl_path zero = {};
	struct tl_path *path;

	path = bpf_map_lookup_elem(&tl_path, &key);
	if (path)
		return path;
	bpf_map_update_elem(&tl_path, &key, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&tl_path, &key);
}

/* Adds what happened since the flow's entry was last written: nothing counts twice, however often this is called. */
static __always_inline void tl_path_add(struct bpf_sock_ops *ctx, const struct tl_flow *flow, __u32 srtt_us,
					__u64 delivered_Bps)
{
	struct tl_path *path = tl_path_of(flow);
	__u32 rtt_min_us = ctx->rtt_min;

	if (!path)
		return;
	__sync_fetch_and_add(&path->bytes_acked, ctx->bytes_acked - flow->bytes_acked);
	__sync_fetch_and_add(&path->bytes_received, ctx->bytes_received - flow->bytes_received);
	__sync_fetch_and_add(&path->segs_out, (__u32)(ctx->segs_out - flow->segs_out));
	__sync_fetch_and_add(&path->retransmits, (__u32)(ctx->total_retrans - flow->retransmits));
	/* Averages of flows on several processors may lose a sample to each other; that is what averages bear. */
	if (srtt_us)
		path->srtt_us = TL_AVERAGE(path->srtt_us, srtt_us);
	if (delivered_Bps && ctx->op == BPF_SOCK_OPS_RTT_CB)
		path->delivered_Bps = TL_AVERAGE(path->delivered_Bps, delivered_Bps);
	if (rtt_min_us && rtt_min_us != ~0U && (!path->rtt_min_us || rtt_min_us < path->rtt_min_us))
		path->rtt_min_us = rtt_min_us;
	path->update_ns = bpf_ktime_get_ns();
}

static __always_inline void tl_path_count(const struct tl_flow *flow)
{
	struct tl_path *path = tl_path_of(flow);

	if (path)
		__sync_fetch_and_add(&path->flows, 1);
}

/* The engine enters a leg's rule when it takes the leg into use, and may change its congestion control at any time. */
static __always_inline void tl_flow_own(const struct tl_sock *st, __u64 cookie, struct tl_flow *flow)
{
	struct tl_own *own;
	bool taken;

	if (!st->own)
		return;
	own = bpf_map_lookup_elem(&tl_own, &cookie);
	if (!own)
		return;
	taken = own->rule_id && own->rule_id != flow->rule_id;
	flow->rule_id = own->rule_id;
	flow->priority = own->priority;
	flow->peer_id = own->peer_id;
	flow->auto_congestion = own->auto_congestion;
	if (taken)
		flow->choice_version = 0; /* the engine has set what the rule says, the path's choice goes before it */
	if (taken && tl_has_path(flow))
		tl_path_count(flow);
}

static __always_inline void tl_flow_read(struct bpf_sock_ops *ctx, const struct tl_sock *st, struct tl_flow *flow)
{
	__u32 interval_us = ctx->rate_interval_us, rtt_min_us = ctx->rtt_min;
	__u64 delivered_Bps = 0;

	if (interval_us)
		delivered_Bps = (__u64)ctx->rate_delivered * ctx->mss_cache * 1000000 / interval_us;
	if (tl_has_path(flow))
		tl_path_add(ctx, flow, ctx->srtt_us >> 3, delivered_Bps);
	flow->update_ns = bpf_ktime_get_ns();
	flow->state = ctx->state;
	flow->srtt_us = ctx->srtt_us >> 3;
	flow->rtt_min_us = rtt_min_us == ~0U ? 0 : rtt_min_us;
	flow->cwnd_packets = ctx->snd_cwnd;
	flow->ssthresh_packets = ctx->snd_ssthresh;
	flow->mss_bytes = ctx->mss_cache;
	flow->delivered_Bps = delivered_Bps;
	flow->bytes_acked = ctx->bytes_acked;
	flow->bytes_received = ctx->bytes_received;
	flow->segs_out = ctx->segs_out;
	flow->retransmits = ctx->total_retrans;
	flow->marked = st->marked;
	bpf_getsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, flow->congestion, sizeof(flow->congestion));
}

/* Enters a flow whose ends and kind are filled in, and asks for the callbacks that keep the entry up to date. */
static __always_inline void tl_flow_begin(struct bpf_sock_ops *ctx, __u64 cookie, struct tl_sock *st, struct tl_flow *flow)
{
	st->marked = 0;
	flow->rule_id = st->rule_id;
	flow->priority = st->priority;
	flow->reason = st->reason;
	flow->start_ns = bpf_ktime_get_ns();
	if (flow->passive && tl_has_path(flow))
		tl_path_count(flow);
	tl_flow_own(st, cookie, flow);
	tl_flow_read(ctx, st, flow);
	/* The flags that other programs asked for stay. */
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | TL_FLOW_FLAGS);
	bpf_map_update_elem(&tl_flow, &cookie, flow, BPF_ANY);
}

static __always_inline void tl_flow_end(const struct tl_sock *st, __u64 cookie)
{
	bpf_map_delete_elem(&tl_flow, &cookie);
	bpf_map_delete_elem(&tl_flow_window, &cookie);
	if (st->own)
		bpf_map_delete_elem(&tl_own, &cookie);
}

/* Called at each callback of an established flow: about once a round trip, at retransmissions and state changes. */
static __always_inline void tl_flow_update(struct bpf_sock_ops *ctx)
{
	bool change = ctx->op == BPF_SOCK_OPS_STATE_CB;
	__u32 state = change ? ctx->args[1] : 0;
	struct bpf_sock *sk = ctx->sk;
	struct tl_flow *flow;
	struct tl_sock *st;
	__u64 cookie;

	if (!sk)
		return;
	st = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (!st)
		return;
	cookie = bpf_get_socket_cookie(ctx);
	flow = bpf_map_lookup_elem(&tl_flow, &cookie);
	if (flow) {
		tl_flow_own(st, cookie, flow);
		if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && flow->kind == TL_FLOW_PLAIN)
			tl_path_count(flow); /* not when it begins: a connect that fails is no flow */
		flow->reason = st->reason;
		tl_loss_note(ctx, cookie, flow); /* with what the entry says of the time before */
		tl_congestion_anew(ctx, flow);
		tl_choice_keep(ctx, flow);
		tl_flow_read(ctx, st, flow);
		if (change)
			flow->state = state;
	}
	if (change && state == TL_TCP_CLOSE) /* also of a connect that failed */
		tl_flow_end(st, cookie);
}
