/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * What a filter of clsact runs in place of the program itself, on kernels without tcx. A filter outlives the agent, and what
 * others mean by the bit of the mark must not get their packets rewritten then. So the filter's program only calls through
 * a table, and the kernel empties a table of programs when its last descriptor is closed: with the process, however
 * that ends. The call then fails, and what is left does nothing and holds no other map.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define TL_TC_NEXT -1 /* TC_ACT_UNSPEC: the next filter decides */

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tl_gate SEC(".maps");

SEC("tc")
int tl_clsact(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &tl_gate, 0);
	return TL_TC_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
