/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Loses packets by their number, where they enter the emulated link. Packet n is lost where a hash of n falls below a
 * threshold, so that equal keys lose the same packets in every run. The lab's other emulation computes the same (fate.go).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TL_GOLDEN 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio: the step between two numbers, as splitmix64 has it */
#define TL_IP6_HEADER 40
#define TL_IP4_HEADER_MIN 20
#define TL_FRAGMENT_OFFSET 0x1fff

/* What user space asks for. */
struct tl_drop_rule {
	__u64 key;	    /* of the hash */
	__u64 after_passed; /* of 2^32: how likely the packet behind one that passed is lost */
	__u64 after_lost;   /* and that behind one that was lost */
	__u32 run;	    /* another value than before: packets count from 0 again */
	__u32 data_only;    /* 1: only TCP segments with payload have numbers and are lost */
	__u32 down;	    /* 1: nothing passes */
	__u32 pad;
};

/* What happened, and where in the run we are. Only this program writes it. */
struct tl_drop_count {
	struct bpf_spin_lock lock; /* of number, lost_before and run, which packets on several processors share */
	__u32 run;
	__u64 number;	   /* of the next packet */
	__u64 lost_before; /* 1: the packet before was lost */
	__u64 packets;	   /* that came, lost ones too; without multicast and what is not IP */
	__u64 bytes;	   /* IP bytes of them */
	__u64 lost;
	__u64 down_drops;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_drop_rule);
} tl_drop_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_drop_count);
} tl_drop_counts SEC(".maps");

/* The finalizer of splitmix64. */
static __always_inline __u64 tl_mix(__u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* Says whether TCP with its header at this offset, and so many bytes up to the packet's end, carries payload. */
static __always_inline bool tl_tcp_payload(struct __sk_buff *skb, __u32 at, int tcp_bytes)
{
	__u8 offset; /* of the payload, in the upper 4 bits, in words of 4 bytes */

	if (bpf_skb_load_bytes(skb, at + 12, &offset, 1))
		return false;
	return tcp_bytes > (offset >> 4) * 4;
}

static __always_inline bool tl_data4(struct __sk_buff *skb)
{
	__u8 ip[TL_IP4_HEADER_MIN];
	int header_bytes, total_bytes;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(ip)))
		return false;
	if (ip[9] != IPPROTO_TCP || ((ip[6] << 8 | ip[7]) & TL_FRAGMENT_OFFSET))
		return false;
	header_bytes = (ip[0] & 15) * 4;
	total_bytes = ip[2] << 8 | ip[3];
	return tl_tcp_payload(skb, ETH_HLEN + header_bytes, total_bytes - header_bytes);
}

static __always_inline bool tl_data6(struct __sk_buff *skb)
{
	__u8 ip[8]; /* up to the next header; one with extension headers is not looked into */

	if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(ip)) || ip[6] != IPPROTO_TCP)
		return false;
	return tl_tcp_payload(skb, ETH_HLEN + TL_IP6_HEADER, ip[4] << 8 | ip[5]);
}

static __always_inline bool tl_is_data(struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IP) ? tl_data4(skb) : tl_data6(skb);
}

/* Gives the packet its number and says whether that is lost. */
static __always_inline bool tl_is_lost(const struct tl_drop_rule *rule, struct tl_drop_count *count)
{
	__u64 key = rule->key, after_passed = rule->after_passed, after_lost = rule->after_lost, lost;
	__u32 run = rule->run;

	bpf_spin_lock(&count->lock);
	if (count->run != run) {
		count->run = run;
		count->number = 0;
		count->lost_before = 0;
	}
	lost = tl_mix(key + count->number * TL_GOLDEN) >> 32 < (count->lost_before ? after_lost : after_passed);
	count->number++;
	count->lost_before = lost;
	bpf_spin_unlock(&count->lock);
	return lost;
}

SEC("tc")
int tl_drop(struct __sk_buff *skb)
{
	const struct tl_drop_rule *rule;
	struct tl_drop_count *count;
	__u32 zero = 0;
	bool lost;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return TC_ACT_OK; /* neighbours asking for each other */
	if (skb->pkt_type != 0) /* PACKET_HOST; multicast is housekeeping, and goes no further than the router */
		return TC_ACT_OK;
	rule = bpf_map_lookup_elem(&tl_drop_rules, &zero);
	count = bpf_map_lookup_elem(&tl_drop_counts, &zero);
	if (!rule || !count)
		return TC_ACT_OK;
	__sync_fetch_and_add(&count->packets, 1);
	__sync_fetch_and_add(&count->bytes, skb->len - ETH_HLEN);
	/* It has its number even if the link is down, so that the losses after that are those of a run without. */
	lost = (!rule->data_only || tl_is_data(skb)) && tl_is_lost(rule, count);
	if (rule->down) {
		__sync_fetch_and_add(&count->down_drops, 1);
		return TC_ACT_SHOT;
	}
	if (!lost)
		return TC_ACT_OK;
	__sync_fetch_and_add(&count->lost, 1);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
