/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * The verdict on what an application writes to the engine: while the budget lasts the bytes go straight into the engine's
 * receive queue. The decision is sticky from the first message: the kernel reads redirected bytes before those of TCP, so
 * from redirected to plain keeps the order, once, and the way back never does.
 */
#include "lookup.h"
#include "splice_maps.h"

/* Fields are read before any branch: reads merged behind one go through a changed pointer, which the verifier refuses. */
static __always_inline void tl_splice_key_of(volatile struct sk_msg_md *msg, struct tl_splice_key *key)
{
	__u32 family = msg->family, ip4 = msg->local_ip4;
	__u32 a0 = msg->local_ip6[0], a1 = msg->local_ip6[1], a2 = msg->local_ip6[2], a3 = msg->local_ip6[3];

	key->addr = family == TL_AF_INET ? tl_addr4(ip4) : tl_addr6(a0, a1, a2, a3);
	key->port = msg->local_port;
	key->engine_port = bpf_ntohl(msg->remote_port);
}

SEC("sk_msg")
int tl_verdict(struct sk_msg_md *msg)
{
	struct tl_splice_count *n = tl_splice_counts();
	struct tl_splice_key key = {};
	struct bpf_sock *sk = msg->sk;
	__u32 size = msg->size;
	struct tl_sock *s;

	if (!sk || !n)
		return SK_PASS;
	s = bpf_sk_storage_get(&tl_sock, sk, 0, 0);
	if (!s || s->splice != TL_SPLICE_ON)
		return SK_PASS;

	if (size > TL_SPLICE_BYTES || s->splice_bytes + size > TL_SPLICE_BYTES || s->splice_msgs >= TL_SPLICE_MSGS) {
		s->splice = TL_SPLICE_OVER;
		n->spent++;
		return SK_PASS;
	}
	if (!tl_splice_fit(sk)) {
		s->splice = TL_SPLICE_OVER;
		n->unfit++;
		return SK_PASS;
	}
	tl_splice_key_of(msg, &key);
	if (bpf_msg_redirect_hash(msg, &tl_engs, &key, BPF_F_INGRESS) != SK_PASS) {
		s->splice = TL_SPLICE_OVER;
		n->absent++;
		return SK_PASS;
	}
	s->splice_bytes += size;
	s->splice_msgs++;
	n->redirected++;
	n->redirected_bytes += size;
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
