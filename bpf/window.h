/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Windows of flows, by the mode of their rule. Nothing is set on listening sockets: a fixed buffer ends auto-tuning for good,
 * for clients of the LAN, too. What a connection that comes in is to have is the reply to the question for its initial
 * window; with it the kernel chooses a window scale that is large enough, whenever the listener began to listen.
 */
#pragma once
#include "maps.h"
#include "lookup.h"
#include "telemetry.h"

#define TL_SOL_SOCKET 1
#define TL_SO_RCVBUF 8
#define TL_ENOBUFS 105
#define TL_IW_AUTO_MAX 64 /* packets: what the window of a SYN lets out in the first round trip, and a third more */

/*
 * A fixed receive buffer must be set before the handshake, later the window scale is set already; an accepted socket has got
 * its scale by the reply. The loader has made room in net.core.rmem_max; if somebody took it away again the kernel gives less
 * without a word, hence the look back.
 */
static __always_inline void tl_window_buffer(struct bpf_sock_ops *ctx, __u32 bytes, struct tl_flow *flow)
{
	int want = bytes, have = 0;

	flow->window_rc = bpf_setsockopt(ctx, TL_SOL_SOCKET, TL_SO_RCVBUF, &want, sizeof(want));
	if (flow->window_rc)
		return;
	flow->window_rc = bpf_getsockopt(ctx, TL_SOL_SOCKET, TL_SO_RCVBUF, &have, sizeof(have));
	if (flow->window_rc)
		return;
	flow->window_bytes = (__u32)have / 2; /* the kernel doubles what is set */
	if (flow->window_bytes < bytes)
		flow->window_rc = -TL_ENOBUFS;
}

#include "reserved_turn.h"

/* What a path has shown it bears: a quarter of its BDP in the first round trip; more only a reservation entitles to. */
static __always_inline void tl_window_initial(struct bpf_sock_ops *ctx, const struct tl_flow *flow, struct tl_flow_window *w)
{
	struct tl_path_key key = tl_path_key(flow);
	__u32 mss = ctx->mss_cache;
	struct tl_path *path;
	__u64 packets;
	int iw;

	path = bpf_map_lookup_elem(&tl_path, &key);
	if (!mss || !path || !path->delivered_Bps || !path->rtt_min_us) {
		w->why = TL_WHY_UNMEASURED;
		return;
	}
	if (path->srtt_us > path->rtt_min_us * 3 / 2 + 5000) {
		w->why = TL_WHY_BLOATED;
		return;
	}
	if (path->retransmits * 200 > path->segs_out) {
		w->why = TL_WHY_LOSSY;
		return;
	}
	packets = path->delivered_Bps * path->rtt_min_us / 1000000 / 4 / mss;
	if (packets <= TL_IW_DEFAULT)
		return;
	iw = packets > TL_IW_AUTO_MAX ? TL_IW_AUTO_MAX : (int)packets;
	if (!bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_BPF_IW, &iw, sizeof(iw)))
		w->initial_packets = iw;
}

/* A connection under a rule begins, before its SYN or accepted; its entry is there. */
__noinline int tl_window_begin(struct bpf_sock_ops *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct tl_flow_window w = {};
	struct tl_rule *rule;
	struct tl_flow *flow;

	flow = bpf_map_lookup_elem(&tl_flow, &cookie);
	if (!flow || flow->kind != TL_FLOW_PLAIN)
		return 0;
	rule = tl_find_rule(&flow->remote_addr, flow->passive ? flow->local_port : flow->remote_port);
	if (!rule || rule->window == TL_WINDOW_KERNEL)
		return 0;
	flow->window = rule->window;
	if (!tl_is_routed(&flow->remote_addr)) {
		w.why = TL_WHY_NEAR;
	} else if (rule->window == TL_WINDOW_RESERVED) {
		tl_reserved_begin(ctx, rule->weight, flow); /* and shows for itself */
		return 0;
	} else if (rule->window == TL_WINDOW_FIXED) {
		if (rule->window_bytes)
			tl_window_buffer(ctx, rule->window_bytes, flow);
		if (!rule->window_bytes || flow->window_rc)
			w.why = TL_WHY_NO_ROOM;
	} else if (flow->passive) {
		tl_window_initial(ctx, flow, &w);
	}
	bpf_map_update_elem(&tl_flow_window, &cookie, &w, BPF_ANY);
	return 0;
}

/* An outgoing connection under a rule is established. */
__noinline int tl_window_established(struct bpf_sock_ops *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct tl_flow_window *w;
	struct tl_flow *flow;

	flow = bpf_map_lookup_elem(&tl_flow, &cookie);
	w = bpf_map_lookup_elem(&tl_flow_window, &cookie);
	if (flow && w && flow->window == TL_WINDOW_AUTO && w->why != TL_WHY_NEAR)
		tl_window_initial(ctx, flow, w);
	return 0;
}

/*
 * The initial window of a connection that comes in, in segments, from which the kernel takes its scale; it asks before there is
 * a socket. A window in a buffer that is too small is one the kernel cannot keep to, so there is a reply only where the
 * accepted socket gets the buffer.
 */
static __always_inline int tl_window_reply(struct bpf_sock_ops *ctx, const struct tl_addr *remote)
{
	struct tl_reserved *r;
	struct tl_rule *rule;
	__u32 slot = 0;

	rule = tl_find_rule(remote, ctx->local_port);
	if (!rule || !tl_is_routed(remote))
		return 0;
	if (rule->window == TL_WINDOW_FIXED)
		return rule->window_bytes / TL_MSS_GUESS;
	if (rule->window != TL_WINDOW_RESERVED)
		return 0;
	r = tl_reserved_for(remote, bpf_ktime_get_ns(), &slot);
	return r ? r->window_bytes / TL_MSS_GUESS : 0;
}
