/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flows on a reserved path. W = B x RTT is known from the start (Noh and Ahn, 2009), so nothing is searched for: the receiver
 * has the window before the handshake, the sender starts with a congestion window of its share of W and is paced by the kernel
 * just below its share of B, which is what keeps a short queue from overflowing. After a loss the flow's congestion control
 * goes on from there as it does from any window.
 */
#pragma once
#include "maps.h"
#include "lookup.h"
#include "share.h"

/* The kernel's numbers; its own headers for them clash with <linux/bpf.h>. */
#define TL_SO_MAX_PACING_RATE 47
#define TL_TCP_WINDOW_CLAMP 10
#define TL_TCP_BPF_IW 1001
#define TL_TCP_BPF_SNDCWND_CLAMP 1002
#define TL_TCP_ESTABLISHED 1

#define TL_MSS_GUESS 1448	/* before the handshake has told */
#define TL_HEADERS4 66		/* ethernet, IPv4, TCP with timestamps */
#define TL_HEADERS6 86
#define TL_IW_DEFAULT 10	/* packets, the kernel's */
#define TL_PACE_MIN 4096	/* bytes per second */
#define TL_PACE_MAX 0xfffffffeU
#define TL_PACE_NONE 0xffffffffU
#define TL_WINDOW_MIN 65535
#define TL_WINDOW_OPEN 0x3fffffff
#define TL_FRESH_EPOCHS 3
#define TL_WRITE_FLAG BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG

static __always_inline struct tl_reserved_sk *tl_reserved_of(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk ? bpf_sk_storage_get(&tl_reserved_sk, sk, 0, 0) : 0;
}

/* The reservation in force for an address, with its slot; none: 0. */
static __always_inline struct tl_reserved *tl_reserved_for(const struct tl_addr *remote, __u64 now_ns, __u32 *slot)
{
	struct tl_reserved_prefix prefix = { .prefixlen = 128 };
	struct tl_reserved *r;
	__u32 *found;

	__builtin_memcpy(prefix.addr, remote, sizeof(prefix.addr));
	found = bpf_map_lookup_elem(&tl_reserved_net, &prefix);
	if (!found)
		return 0;
	*slot = *found;
	r = bpf_map_lookup_elem(&tl_reserved, slot);
	if (!r || !r->generation || (r->until_ns && now_ns >= r->until_ns))
		return 0;
	return r;
}

/* The entry of the reservation that a flow is under; 0: it is under none. */
static __always_inline struct tl_reserved *tl_reserved_entry(const struct tl_reserved_sk *st)
{
	__u32 slot = st->slot;

	return st->state == TL_RES_IN_FORCE ? bpf_map_lookup_elem(&tl_reserved, &slot) : 0;
}

/* Whether two settings differ enough for the kernel to be told. */
static __always_inline bool tl_differs(__u32 a, __u32 b)
{
	__u32 d = a > b ? a - b : b - a;

	return d > b / 64;
}

/*
 * The payload rate of a share of the link: payload / (payload + headers) of it, and a half per cent less, so that a queue
 * drains. TCP stamps each segment with the time when it may leave, by its payload, whether its own timer waits or the fq queue.
 */
static __always_inline __u32 tl_pacing_of(const struct tl_reserved *r, __u64 share_Bps, __u32 mss, __u32 headers)
{
	__u64 Bps = share_Bps * mss / (mss + headers);

	Bps -= Bps / 200;
	if (Bps > TL_PACE_MAX)
		Bps = TL_PACE_MAX;
	if (Bps < TL_PACE_MIN)
		Bps = TL_PACE_MIN;
	return ((__u32)Bps & ~0xffU) | (r->sign & 0xff);
}

/*
 * Functions that are not static are verified once, each alone, and not again on every way that leads to them: there are many,
 * and the verifier gives up after a million instructions. They find for themselves what they need of the flow.
 */

/* Counts the flow for what it sends (or receives), and says what is its share. */
static __always_inline int tl_reserved_count(struct bpf_sock_ops *ctx, bool send)
{
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	__u32 total, weight, slot;
	struct tl_reserved_use *use;
	struct tl_reserved *r;
	struct tl_turn t = {};
	__u64 now_ns, share;

	if (!st)
		return 0;
	r = tl_reserved_entry(st);
	slot = st->slot;
	use = bpf_map_lookup_elem(&tl_reserved_use, &slot);
	if (!r || !use)
		return 0;
	now_ns = bpf_ktime_get_ns();
	t.length_ns = tl_epoch_length_ns(r);
	t.full = st->weight;
	t.epoch = now_ns / t.length_ns;
	t.fresh = now_ns - st->begin_ns < TL_FRESH_EPOCHS * t.length_ns;
	t.entitled_bytes = (send ? st->share_Bps : st->receive_Bps) * (t.length_ns / 1000) / 1000000;
	t.seq = send ? ctx->snd_nxt : ctx->rcv_nxt;
	bpf_spin_lock(&use->lock);
	if (use->generation != st->generation) {
		use->generation = st->generation;
		use->send.length_ns = 0;
		use->receive.length_ns = 0;
	}
	if (send) {
		total = tl_share_count(&use->send, &st->send, &t);
		weight = st->send.now;
	} else {
		total = tl_share_count(&use->receive, &st->receive, &t);
		weight = st->receive.now;
	}
	bpf_spin_unlock(&use->lock);
	if (!total)
		return 0;
	share = r->rate_Bps * weight / total;
	if (send)
		st->share_Bps = share;
	else
		st->receive_Bps = share;
	return 0;
}

__noinline int tl_reserved_send(struct bpf_sock_ops *ctx) { return tl_reserved_count(ctx, true); }

__noinline int tl_reserved_receive(struct bpf_sock_ops *ctx) { return tl_reserved_count(ctx, false); }

static __always_inline void tl_reserved_uncount(struct tl_reserved_sk *st)
{
	struct tl_reserved_use *use;
	__u32 slot = st->slot;

	use = bpf_map_lookup_elem(&tl_reserved_use, &slot);
	if (!use)
		return;
	bpf_spin_lock(&use->lock);
	if (use->generation == st->generation) {
		tl_share_forget(&use->send, &st->send);
		tl_share_forget(&use->receive, &st->receive);
	}
	bpf_spin_unlock(&use->lock);
}

/*
 * Sets what follows from the share: the rate, the most of the congestion window (a quarter more than W: acknowledgements may be
 * late), and the most of the window that is advertised, which a sender without a reservation of its own obeys. A clamp of
 * the congestion window moves ssthresh with it, so a flow whose share grows doubles its window until it has it.
 */
__noinline int tl_reserved_set(struct bpf_sock_ops *ctx)
{
	bool known = ctx->state != BPF_TCP_SYN_SENT && ctx->state != BPF_TCP_CLOSE;
	__u32 mss = known ? ctx->mss_cache : TL_MSS_GUESS, headers, v;
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	struct tl_reserved *r;
	__u64 bytes;

	if (!st || !mss)
		return 0;
	r = tl_reserved_entry(st);
	if (!r)
		return 0;
	headers = st->v6 ? TL_HEADERS6 : TL_HEADERS4;
	v = tl_pacing_of(r, st->share_Bps, mss, headers);
	if (tl_differs(v, st->pacing_Bps) && !bpf_setsockopt(ctx, TL_SOL_SOCKET, TL_SO_MAX_PACING_RATE, &v, sizeof(v)))
		st->pacing_Bps = v;
	if (!known)
		return 0;
	bytes = st->share_Bps * r->rtt_us / 1000000 >> (r->squeeze & 7);
	v = (__u32)((bytes + bytes / 4) / (mss + headers)) + 2 * TL_IW_DEFAULT;
	if (tl_differs(v, st->cwnd_packets) && !bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_BPF_SNDCWND_CLAMP, &v, sizeof(v)))
		st->cwnd_packets = v;
	bytes = (st->receive_Bps * r->rtt_us / 1000000 >> (r->squeeze & 7)) * 3 / 2;
	v = bytes < TL_WINDOW_MIN ? TL_WINDOW_MIN : bytes > TL_WINDOW_OPEN ? TL_WINDOW_OPEN : (__u32)bytes;
	if (!st->window_bytes && st->receive_Bps == r->rate_Bps && !r->squeeze)
		return 0; /* alone: the buffer says it */
	if (tl_differs(v, st->window_bytes) && !bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_WINDOW_CLAMP, &v, sizeof(v)))
		st->window_bytes = v;
	return 0;
}

/* The flow joins the reservation that is in force for its other end, if there is one. */
static __always_inline bool tl_reserved_join(struct tl_reserved_sk *st, const struct tl_addr *remote)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct tl_reserved *r;
	__u32 slot = 0;

	r = tl_reserved_for(remote, now_ns, &slot);
	if (!r) {
		if (st->why != TL_WHY_ENDED)
			st->why = TL_WHY_NONE;
		return false;
	}
	st->slot = slot;
	st->generation = r->generation;
	st->begin_ns = now_ns;
	st->since_ns = now_ns;
	st->state = TL_RES_IN_FORCE;
	st->why = TL_WHY_NOT;
	return true;
}

/* One BDP of the share at once: only before the first data, whatever route, metrics or congestion control say. */
__noinline int tl_reserved_initial(struct bpf_sock_ops *ctx)
{
	bool known = ctx->state != BPF_TCP_SYN_SENT && ctx->state != BPF_TCP_CLOSE;
	__u32 mss = known ? ctx->mss_cache : TL_MSS_GUESS, headers;
	struct tl_reserved_sk *st = tl_reserved_of(ctx);
	struct tl_reserved *r;
	__u64 bytes;
	int packets;

	if (!st || !mss)
		return 0;
	r = tl_reserved_entry(st);
	if (!r)
		return 0;
	headers = st->v6 ? TL_HEADERS6 : TL_HEADERS4;
	bytes = st->share_Bps * r->rtt_us / 1000000 >> (r->squeeze & 7);
	packets = (int)((bytes + bytes / 8) / (mss + headers)) + TL_IW_DEFAULT;
	if (!bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_BPF_IW, &packets, sizeof(packets)))
		st->initial_packets = packets;
	return 0;
}

/*
 * A connection begins: before its SYN, or accepted. Counting before the SYN lets ten connections that begin together
 * know of each other when the first of them may send. The initial window set before the SYN does not last, but makes the rate
 * right with which the first acknowledgement finds it.
 */
static __always_inline void tl_reserved_begin(struct bpf_sock_ops *ctx, __u8 weight, struct tl_flow *flow)
{
	struct bpf_sock *sk = ctx->sk;
	struct tl_reserved_sk *st;
	struct tl_reserved *r;

	if (!sk)
		return;
	st = bpf_sk_storage_get(&tl_reserved_sk, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!st)
		return;
	__builtin_memset(st, 0, sizeof(*st));
	st->weight = (weight ? weight : 1) * TL_WEIGHT_UNIT;
	st->state = TL_RES_WAITING;
	st->v6 = !tl_is_mapped(&flow->remote_addr);
	if (!tl_reserved_join(st, &flow->remote_addr))
		return;
	r = tl_reserved_entry(st);
	if (r && r->window_bytes)
		tl_window_buffer(ctx, r->window_bytes, flow);
	if (!r || !r->window_bytes || flow->window_rc)
		st->why = TL_WHY_NO_ROOM;
	tl_reserved_send(ctx);
	tl_reserved_receive(ctx);
	tl_reserved_initial(ctx);
	tl_reserved_set(ctx);
	if (flow->passive) /* a SYN has no share, and before it the size of segments is not known */
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | TL_WRITE_FLAG);
}

/*
 * The reservation is over: nothing is paced any more, and the congestion window falls back to where a connection begins. The
 * clamp that does it goes, and the algorithm begins anew, once it has (tl_reserved_left). Buffers stay.
 */
static __always_inline void tl_reserved_leave(void *ctx, struct tl_reserved_sk *st)
{
	__u32 none = TL_PACE_NONE, few = TL_IW_DEFAULT, open = TL_WINDOW_OPEN;

	tl_reserved_uncount(st);
	bpf_setsockopt(ctx, TL_SOL_SOCKET, TL_SO_MAX_PACING_RATE, &none, sizeof(none));
	bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_BPF_SNDCWND_CLAMP, &few, sizeof(few));
	if (st->window_bytes)
		bpf_setsockopt(ctx, TL_IPPROTO_TCP, TL_TCP_WINDOW_CLAMP, &open, sizeof(open));
	st->pacing_Bps = 0;
	st->cwnd_packets = 0;
	st->window_bytes = 0;
	st->share_Bps = 0;
	st->receive_Bps = 0;
	st->generation = 0;
	st->since_ns = bpf_ktime_get_ns();
	st->state = TL_RES_LEAVING;
	st->why = TL_WHY_ENDED;
}
