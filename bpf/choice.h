/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion controls chosen by path: what a flow gets when it begins, how a live one follows a change, and what its losses
 * tell whoever chooses.
 */
#pragma once
#include "maps.h"
#include "lookup.h"

/* The kernel's numbers; its own headers for them clash with <linux/bpf.h>. */
#define TL_IPPROTO_TCP 6
#define TL_TCP_CONGESTION 13
#define TL_TCP_BPF_SNDCWND_CLAMP 1002
#define TL_TCP_INFINITE_SSTHRESH 0x7fffffff

/* This host and what is on-link are no paths: nothing is chosen towards them. */
static __always_inline bool tl_is_routed(const struct tl_addr *remote)
{
	struct tl_prefix prefix = { .prefixlen = 128, .addr = *remote };
	struct tl_dest *dest;

	dest = bpf_map_lookup_elem(&tl_dest, &prefix);
	return !dest || dest->where == TL_WHERE_ROUTED;
}

/*
 * A flow whose path has become longer begins anew: what its algorithm knew of the path goes, and slow start finds the new
 * window in a few round trips, as it did at the connect. Setting the same name does nothing, hence the other in between, which
 * every kernel has. The clamp is set to what it is by default, for the threshold that comes with it.
 */
static __always_inline void tl_flow_anew(struct bpf_sock_ops *ctx)
{
	char other[TL_CC_NAME_MAX] = "reno";
	int infinite = TL_TCP_INFINITE_SSTHRESH;

	bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, other, sizeof(other));
	bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_BPF_SNDCWND_CLAMP, &infinite, sizeof(infinite));
}

/*
 * Sets what is chosen for the flow's path; false: nothing is. Each choice is set once, whatever comes of it: an algorithm
 * that is not there leaves the flow what it has, and what an application sets afterwards stays until the choice changes.
 * A flow that is not live yet has nothing to begin anew with.
 */
static __always_inline bool tl_choice_set(struct bpf_sock_ops *ctx, struct tl_flow *flow, bool live)
{
	struct tl_path_key path = tl_path_key(flow);
	struct tl_choice *choice;

	choice = bpf_map_lookup_elem(&tl_choice, &path);
	if (!choice)
		return false;
	if (choice->version == flow->choice_version)
		return true;
	if (choice->anew && live)
		tl_flow_anew(ctx);
	flow->choice_version = choice->version;
	flow->congestion_rc = bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, choice->congestion,
					     sizeof(choice->congestion));
	return true;
}

/* A live flow follows a change of its path's choice with its next round trip. */
static __always_inline void tl_choice_keep(struct bpf_sock_ops *ctx, struct tl_flow *flow)
{
	if (ctx->op == BPF_SOCK_OPS_RTT_CB && flow->auto_congestion && tl_has_path(flow))
		tl_choice_set(ctx, flow, true);
}

/*
 * An algorithm that is set before the SYN begins there and then, when the connection has no sequence numbers yet: those that
 * count rounds by them (Illinois, Vegas, Veno, YeAH, Westwood+, LP) would wait for a number that half of all connections do not
 * come to for two gigabytes. So it begins anew once the numbers are known. Setting the same name does nothing, hence the other
 * in between, which every kernel has.
 */
static __always_inline void tl_congestion_anew(struct bpf_sock_ops *ctx, struct tl_flow *flow)
{
	char name[TL_CC_NAME_MAX] = {}, other[TL_CC_NAME_MAX] = "reno";

	if (ctx->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || !flow->early_congestion)
		return;
	flow->early_congestion = 0;
	if (bpf_getsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name)) ||
	    bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, other, sizeof(other)))
		return;
	flow->congestion_rc = bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_CONGESTION, name, sizeof(name));
}

static __always_inline void tl_loss_report(struct bpf_sock_ops *ctx, __u64 cookie, const struct tl_flow *flow)
{
	__u32 zero = 0, rtt_min_us = ctx->rtt_min;
	struct tl_loss_event *e;
	__u64 *dropped;

	e = bpf_ringbuf_reserve(&tl_loss, sizeof(*e), 0);
	if (!e) {
		dropped = bpf_map_lookup_elem(&tl_loss_dropped, &zero);
		if (dropped)
			(*dropped)++;
		return;
	}
	e->time_ns = bpf_ktime_get_ns();
	e->cookie = cookie;
	e->path = tl_path_key(flow);
	e->srtt_us = ctx->srtt_us >> 3;
	e->rtt_min_us = rtt_min_us == ~0U ? 0 : rtt_min_us;
	e->cwnd_packets = flow->cwnd_packets;
	e->segs_out = ctx->segs_out;
	e->retransmits = ctx->total_retrans;
	e->rule_id = flow->rule_id;
	e->delivered_Bps = flow->delivered_Bps;
	e->bytes_acked = ctx->bytes_acked;
	bpf_ringbuf_submit(e, 0);
}

/*
 * A loss event is a retransmission after all that was in flight at the event before has been acknowledged: a window with
 * many losses is one. A SYN that is sent again tells nothing of a window.
 */
static __always_inline void tl_loss_note(struct bpf_sock_ops *ctx, __u64 cookie, struct tl_flow *flow)
{
	__u64 acked = ctx->bytes_acked;

	if (ctx->op != BPF_SOCK_OPS_RETRANS_CB || ctx->state == BPF_TCP_SYN_SENT || acked < flow->loss_until_bytes)
		return;
	flow->loss_events++;
	flow->loss_until_bytes = acked + (__u64)ctx->packets_out * ctx->mss_cache;
	if (flow->auto_congestion && tl_has_path(flow))
		tl_loss_report(ctx, cookie, flow);
}
