/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How much of a reservation is a flow's: rate x weight / the weights of all flows that are at it. A flow counts in the epoch in
 * which it sends (or receives) and in the one after, so one at rest gives its share back after two to four round trips, and
 * takes it again with the second segment that it sends. One that uses less than half of its share counts half as much in the
 * next epoch, and in full again as soon as it uses three quarters.
 *
 * Nobody tells the flows of a change: each looks when it sends. So a newcomer has its share at once, and no other sends a
 * segment by its old share once the newcomer is counted, which is before its SYN, or when it is accepted.
 */
#pragma once
#include "maps.h"

#define TL_WEIGHT_UNIT 64
#define TL_WEIGHT_LEAST 16 /* a flow never counts less than this fraction of its weight */
#define TL_EPOCH_MIN_NS 50000000ULL
#define TL_EPOCH_MAX_NS 2000000000ULL

/* What a flow asks of a tl_share. */
struct tl_turn {
	__u64 epoch;
	__u64 length_ns;
	__u64 entitled_bytes; /* what its share let it send in an epoch */
	__u32 full;	      /* its weight */
	__u32 seq;	      /* its sequence number now */
	bool fresh;	      /* just begun: counts in full, though it has sent nothing yet */
};

static __always_inline void tl_share_roll(struct tl_share *s, const struct tl_turn *t)
{
	if (s->length_ns != t->length_ns) { /* the reservation has another round-trip time: counted anew */
		s->length_ns = t->length_ns;
		s->epoch = t->epoch;
		s->before = 0;
		s->now = 0;
	} else if (t->epoch > s->epoch) { /* never back: another processor's clock may have been read first */
		s->before = t->epoch == s->epoch + 1 ? s->now : 0;
		s->now = 0;
		s->epoch = t->epoch;
	}
}

/* What a flow counts for in its next epoch, by what it made of this one. */
static __always_inline __u32 tl_share_demand(const struct tl_count *f, const struct tl_turn *t)
{
	__u64 used = (__u32)(t->seq - f->base);
	__u32 least = t->full / TL_WEIGHT_LEAST;

	if (t->fresh || used * 4 >= t->entitled_bytes * 3)
		return t->full;
	if (used * 2 >= t->entitled_bytes)
		return f->now;
	return f->now / 2 > least ? f->now / 2 : least;
}

/*
 * Counts a flow that is at it. The weights that its share is taken of come back, at least its own; 0: it is at rest, and its
 * share is what it was. The reservation's lock is held: no calls in here.
 */
static __always_inline __u32 tl_share_count(struct tl_share *s, struct tl_count *f, const struct tl_turn *t)
{
	bool active = t->fresh || t->seq != f->seq;
	__u32 old = 0, now = t->full, total;

	tl_share_roll(s, t);
	f->seq = t->seq;
	if (!active)
		return 0;
	if (f->epoch != s->epoch) {
		if (f->now && f->epoch + 1 == s->epoch) {
			old = f->now;
			now = tl_share_demand(f, t);
		}
		if (now > old)
			s->before += now - old;
		f->before = now > old ? now : old;
		f->now = now;
		f->base = t->seq;
		f->epoch = s->epoch;
		s->now += now;
	}
	total = s->before > s->now ? s->before : s->now;
	return total > f->now ? total : f->now;
}

static __always_inline void tl_share_less(__u32 *sum, __u32 n)
{
	*sum = *sum > n ? *sum - n : 0;
}

/* Takes out what a flow counts for, when it ends. The reservation's lock is held. */
static __always_inline void tl_share_forget(struct tl_share *s, struct tl_count *f)
{
	if (f->epoch == s->epoch) {
		tl_share_less(&s->now, f->now);
		tl_share_less(&s->before, f->before);
	} else if (f->epoch + 1 == s->epoch) {
		tl_share_less(&s->before, f->now);
	}
	f->epoch = 0;
	f->now = 0;
	f->before = 0;
}

static __always_inline __u64 tl_epoch_length_ns(const struct tl_reserved *r)
{
	__u64 ns = 2000ULL * r->rtt_us;

	if (ns < TL_EPOCH_MIN_NS)
		return TL_EPOCH_MIN_NS;
	return ns > TL_EPOCH_MAX_NS ? TL_EPOCH_MAX_NS : ns;
}
