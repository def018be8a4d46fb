/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * The verdict on what an application writes to the engine: while the budget lasts the bytes go straight into the engine's
 * receive queue. The decision is sticky from the first message: the kernel reads redirected bytes before those of TCP, so
 * from redirected to plain keeps the order, once, and the way back never does.
 */
#include "splice_maps.h"

SEC("sk_msg")
int tl_verdict(struct sk_msg_md *msg)
{
	struct tl_splice_count *n = tl_splice_counts();
	struct tl_splice_id id = {};
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
	id.cookie = s->splice_cookie;
	id.seq = s->splice_seq;
	if (bpf_msg_redirect_hash(msg, &tl_engs, &id, BPF_F_INGRESS) != SK_PASS) {
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
