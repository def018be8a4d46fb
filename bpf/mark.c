/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Decides which packets a rule's priority marks. The decision is taken here and not at tcx: a packet that had to wait for
 * its neighbour's address reaches tcx when snd_nxt has moved on, and would look like a retransmission. skb->mark carries
 * it; only one bit of it is ours.
 */
#include <stdbool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include "maps.h"

#define TL_IPPROTO_TCP 6

/* Bytes of sequence space that the packet takes, and where they begin; 0: not TCP, or nothing but an acknowledgement. */
static __always_inline __u32 tl_seglen(struct __sk_buff *skb, __u32 *seq)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data;
	struct tcphdr *tcp;
	__u32 ip_len;

	if (data + sizeof(*ip) > end)
		return 0;
	if (ip->version == 4) {
		if (ip->protocol != TL_IPPROTO_TCP)
			return 0;
		ip_len = ip->ihl * 4;
	} else {
		struct ipv6hdr *ip6 = data;

		/* With extension headers (and jumbograms have one) the packet goes unmarked. */
		if (data + sizeof(*ip6) > end || ip6->nexthdr != TL_IPPROTO_TCP)
			return 0;
		ip_len = sizeof(*ip6);
	}
	tcp = data + ip_len;
	if ((void *)(tcp + 1) > end)
		return 0;
	*seq = bpf_ntohl(tcp->seq);
	/* skb->len begins at the IP header here; its own length field is 0 in the largest super-packets. */
	return skb->len - ip_len - tcp->doff * 4 + tcp->syn + tcp->fin;
}

/*
 * What the engine says of a leg is kept with the socket: the entry goes when the engine closes it, and the last segments
 * may still have to be sent again then.
 */
static __always_inline __u8 tl_priority_of(struct __sk_buff *skb, struct tl_sock *st)
{
	struct tl_own *own;
	__u64 cookie;

	if (!st->own)
		return st->priority;
	cookie = bpf_get_socket_cookie(skb);
	own = bpf_map_lookup_elem(&tl_own, &cookie);
	if (own)
		st->priority = own->leg ? own->priority : TL_PRIORITY_OFF;
	return st->priority;
}

static __always_inline bool tl_wants_mark(struct __sk_buff *skb, struct bpf_sock *sk, __u8 priority, const struct tl_agent *agent)
{
	__u32 seq = 0, seglen = tl_seglen(skb, &seq), ns = agent->slow_start_ns;
	struct bpf_tcp_sock *tp;

	if (!seglen)
		return false;
	tp = bpf_tcp_sock(sk);
	if (!tp)
		return false;
	if ((__s32)(seq - tp->snd_nxt) < 0)
		return true;
	if (priority != TL_PRIORITY_SLOW_START)
		return false;
	/* Before the first loss ssthresh is infinite: all of the first slow start counts as early. */
	return tp->snd_cwnd <= tp->snd_ssthresh / (ns ? ns : 2);
}

SEC("cgroup_skb/egress")
int tl_mark(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct tl_agent *agent;
	struct tl_sock *st;
	__u32 zero = 0;
	__u8 priority;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	/* A SYN-ACK comes with the listener's socket, whose snd_nxt says nothing. */
	if (!sk || sk->protocol != TL_IPPROTO_TCP || sk->state == BPF_TCP_LISTEN)
		return 1;
	st = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (!st)
		return 1;
	priority = tl_priority_of(skb, st);
	if (priority == TL_PRIORITY_OFF)
		return 1;
	agent = bpf_map_lookup_elem(&tl_agent, &zero);
	/* No bit: there is nothing at the interfaces that would take it off again. */
	if (!agent || !agent->mark_bit || !tl_wants_mark(skb, sk, priority, agent))
		return 1;
	skb->mark |= agent->mark_bit;
	__sync_fetch_and_add(&st->marked, skb->gso_segs ? skb->gso_segs : 1);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
