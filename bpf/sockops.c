/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/* The one sockops program: hands each call to what concerns itself with it. */
#include "rules.h"
#include "steer.h"
#include "splice.h"
#include "telemetry.h"

/* Verified once each, and with a stack of their own: the entry of a flow takes most of what a program has. */
__noinline int tl_update_sockops(struct bpf_sock_ops *ctx)
{
	tl_flow_update(ctx);
	return 0;
}

__noinline int tl_rules_sockops(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0, op = ctx->op;
	struct tl_agent *agent;

	agent = bpf_map_lookup_elem(&tl_agent, &zero);
	if (agent)
		tl_rules_begin(ctx, agent, op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB);
	return 0;
}

__noinline int tl_steer_all(struct bpf_sock_ops *ctx)
{
	tl_steer_sockops(ctx);
	tl_splice_sockops(ctx);
	return 0;
}

/*
 * ctx->reply is written only for the initial window of a connection whose rule has one: the kernel takes the 0 it starts with as
 * "no opinion" for every operation that asks for a reply, and another program on the way to the root may have one.
 */
SEC("sockops")
int tl_sockops(struct bpf_sock_ops *ctx)
{
	int segments;

	switch (ctx->op) {
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB: /* the most frequent by far */
		tl_reserved_sockops(ctx);
		return 1;
	case BPF_SOCK_OPS_RWND_INIT:
		segments = tl_rules_initial(ctx);
		if (segments > 0)
			ctx->reply = segments;
		return 1;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		tl_rules_sockops(ctx);
		tl_window_begin(ctx); /* after the rule's own pacing: a reserved path goes before it */
		tl_reserved_sockops(ctx);
		break;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
		tl_update_sockops(ctx);
		tl_reserved_sockops(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		tl_update_sockops(ctx);
		tl_reserved_sockops(ctx);
		tl_window_established(ctx);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		tl_steer_all(ctx);
		tl_update_sockops(ctx);
		tl_reserved_sockops(ctx);
		return 1;
	}
	tl_steer_all(ctx);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
