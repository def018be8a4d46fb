/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/* Writes the code point on packets that tl_mark chose, as they leave an interface. Marks stay inside this host. */
#include <linux/if_ether.h>
#include <stdbool.h>
#include <stddef.h>
#include <linux/ip.h>
#include "maps.h"

#define TL_TCX_NEXT -1
#define TL_ECN_BITS 3

static __always_inline bool tl_dscp4(struct __sk_buff *skb, __u32 l2_bytes, __u8 dscp)
{
	__u8 old, tos;

	if (bpf_skb_load_bytes(skb, l2_bytes + offsetof(struct iphdr, tos), &old, 1))
		return false;
	tos = dscp << 2 | (old & TL_ECN_BITS);
	if (tos == old)
		return true;
	/* The checksum adds up 16-bit words; of the first, which holds the version and this byte, only this byte changes. */
	if (bpf_l3_csum_replace(skb, l2_bytes + offsetof(struct iphdr, check), bpf_htons(old), bpf_htons(tos), 2))
		return false;
	return !bpf_skb_store_bytes(skb, l2_bytes + offsetof(struct iphdr, tos), &tos, 1, 0);
}

static __always_inline bool tl_dscp6(struct __sk_buff *skb, __u32 l2_bytes, __u8 dscp)
{
	__u16 word; /* version (4 bits), traffic class (8), the flow label's beginning (4) */
	__u8 class;

	if (bpf_skb_load_bytes(skb, l2_bytes, &word, sizeof(word)))
		return false;
	word = bpf_ntohs(word);
	class = dscp << 2 | (word >> 4 & TL_ECN_BITS);
	word = bpf_htons((word & 0xf00f) | (__u16)class << 4);
	return !bpf_skb_store_bytes(skb, l2_bytes, &word, sizeof(word), 0);
}

SEC("tcx/egress")
int tl_dscp(struct __sk_buff *skb)
{
	__u32 zero = 0, ifindex = skb->ifindex, protocol = skb->protocol;
	struct tl_agent *agent;
	struct tl_iface *iface;
	bool done = false;

	agent = bpf_map_lookup_elem(&tl_agent, &zero);
	iface = bpf_map_lookup_elem(&tl_iface, &ifindex);
	if (!agent || !iface)
		return TL_TCX_NEXT;
	__sync_fetch_and_add(&iface->seen, 1);
	if (!(skb->mark & agent->mark_bit))
		return TL_TCX_NEXT;
	skb->mark &= ~agent->mark_bit;
	if (protocol == bpf_htons(ETH_P_IP))
		done = tl_dscp4(skb, iface->l2_bytes, agent->dscp);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		done = tl_dscp6(skb, iface->l2_bytes, agent->dscp);
	if (done)
		__sync_fetch_and_add(&iface->marked, 1);
	return TL_TCX_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
