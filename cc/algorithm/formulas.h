/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the papers' formulas give, algorithm by algorithm: numbers in, a number out. The algorithms' files say what each means. */
#pragma once
#include "math.h"

/* CUBIC's curve, C = 0.4 packets/s^3, times in 1/1024 s (RFC 9438, 4.2). */
#define TL_CUBIC_MAX_TIME (1 << 20) /* 1024 s: the curve is far beyond every window by then */

/* Until the curve is back where it fell from by distance: K = cbrt(distance / C). */
TL_INLINE __u32 tl_cubic_k(__u32 distance)
{
	return tl_cbrt((__u64)distance * 5 << 29); /* 1024^3 / 0.4 */
}

/* How far the curve is from its middle at a time from it: C * time^3. */
TL_INLINE __u32 tl_cubic_delta(__u64 time)
{
	time = tl_min(time, TL_CUBIC_MAX_TIME);
	return (__u32)(time * time * time / 5 >> 29);
}

/* Where the curve is at a time since its epoch: origin is the window at its middle, k the time of that. */
TL_INLINE __u32 tl_cubic_target(__u32 origin_cwnd, __u32 k_1024ths, __u64 t_1024ths)
{
	if (t_1024ths < k_1024ths)
		return origin_cwnd - tl_min(tl_cubic_delta(k_1024ths - t_1024ths), origin_cwnd);
	return origin_cwnd + tl_cubic_delta(t_1024ths - k_1024ths);
}

/* How many acknowledged packets make the window grow by one, so that it is at target a round trip later. */
TL_INLINE __u32 tl_cubic_count(__u32 cwnd, __u32 target)
{
	return target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;
}

/* The same for the window that Reno would have: one per 1/alpha windows, alpha = 3 (1 - beta) / (1 + beta) (RFC 9438, 4.3). */
#define TL_CUBIC_BETA 717
#define TL_CUBIC_BETA_OF 1024

TL_INLINE __u32 tl_cubic_reno_count(__u32 cwnd)
{
	return cwnd * (8 * (TL_CUBIC_BETA_OF + TL_CUBIC_BETA) / 3 / (TL_CUBIC_BETA_OF - TL_CUBIC_BETA)) >> 3;
}

/* HyStart: slow start is over when the least round-trip time of a round is so much above the least ever: 1/8, 4 to 16 ms. */
#define TL_HYSTART_DELAY_MIN_US 4000
#define TL_HYSTART_DELAY_MAX_US 16000

TL_INLINE __u32 tl_hystart_delay_us(__u32 rtt_min_us)
{
	return tl_min(tl_max(rtt_min_us / 8, TL_HYSTART_DELAY_MIN_US), TL_HYSTART_DELAY_MAX_US);
}

/*
 * And when a train of ACKs lasts longer than this: half a round trip; where the sender is paced a whole one and what four
 * super-packets take at its rate, at most 1 ms, since these lie so far apart.
 */
TL_INLINE __u32 tl_hystart_train_us(__u32 rtt_min_us, __u64 rate_Bps, __u32 paced)
{
	__u64 super_packets_us = rate_Bps ? tl_min(4 * 65536ULL * 1000000 / rate_Bps, 1000ULL) : 0;
	__u32 train_us = rtt_min_us + (__u32)super_packets_us;

	return paced ? train_us : train_us / 2;
}

/* Illinois: alpha from alpha_max at no queueing delay down to alpha_min at the largest, as k1 / (k2 + da). */
#define TL_ILLINOIS_ALPHA_MIN_X128 38	/* 0.3 */
#define TL_ILLINOIS_ALPHA_MAX_X128 1280 /* 10 */
#define TL_ILLINOIS_BETA_MIN_X64 8	/* 1/8 */
#define TL_ILLINOIS_BETA_MAX_X64 32	/* 1/2 */

/* da and dm, the mean and the largest queueing delay, are beyond d1 = dm / 100. */
TL_INLINE __u32 tl_illinois_alpha_x128(__u32 da_us, __u32 dm_us)
{
	__u32 d1_us = dm_us / 100;
	__u64 da = da_us - d1_us, dm = dm_us - d1_us;

	return (__u32)(dm * TL_ILLINOIS_ALPHA_MAX_X128 /
		       (dm + da * (TL_ILLINOIS_ALPHA_MAX_X128 - TL_ILLINOIS_ALPHA_MIN_X128) / TL_ILLINOIS_ALPHA_MIN_X128));
}

/* beta from 1/8 up to d2 = dm / 10, in a straight line to 1/2 at d3 = 0.8 dm. */
TL_INLINE __u32 tl_illinois_beta_x64(__u32 da_us, __u32 dm_us)
{
	__u64 d2 = dm_us / 10, d3 = (__u64)dm_us * 8 / 10;

	if (da_us <= d2)
		return TL_ILLINOIS_BETA_MIN_X64;
	if (da_us >= d3)
		return TL_ILLINOIS_BETA_MAX_X64;
	return (__u32)(TL_ILLINOIS_BETA_MIN_X64 +
		       (TL_ILLINOIS_BETA_MAX_X64 - TL_ILLINOIS_BETA_MIN_X64) * (da_us - d2) / (d3 - d2));
}

/* The queue must have been short for theta rounds before alpha jumps: one short round may be chance. */
#define TL_ILLINOIS_THETA 5

TL_INLINE __u32 tl_illinois_next_alpha_x128(__u32 alpha_x128, __u32 da_us, __u32 dm_us, __u8 *above, __u8 *low)
{
	if (da_us > dm_us / 100) {
		*above = 1;
		return tl_illinois_alpha_x128(da_us, dm_us);
	}
	if (*above && ++*low < TL_ILLINOIS_THETA)
		return alpha_x128;
	*low = 0;
	*above = 0;
	return TL_ILLINOIS_ALPHA_MAX_X128;
}

/* BIC: how many acknowledged packets make the window grow by one. max is where it fell from, 0: not known. */
#define TL_BIC_MAX_INCREMENT 16 /* packets per round trip */
#define TL_BIC_LOW_WINDOW 14	/* packets; below, as Reno */
#define TL_BIC_SMOOTH 20	/* round trips close to max, per BIC_B */
#define TL_BIC_B 4		/* the search halves to a quarter: 1/4 of the distance per round trip */

TL_INLINE __u32 tl_bic_count(__u32 cwnd, __u32 max)
{
	__u32 step;

	if (cwnd <= TL_BIC_LOW_WINDOW)
		return cwnd;
	if (cwnd < max) { /* towards it: binary search, with a largest and a smallest step */
		step = (max - cwnd) / TL_BIC_B;
		if (step > TL_BIC_MAX_INCREMENT)
			return cwnd / TL_BIC_MAX_INCREMENT;
		return step <= 1 ? cwnd * TL_BIC_SMOOTH / TL_BIC_B : cwnd / step;
	}
	/* beyond it: the search mirrored, slow at first, for the next maximum */
	if (cwnd < max + TL_BIC_B)
		return cwnd * TL_BIC_SMOOTH / TL_BIC_B;
	if (cwnd < max + TL_BIC_MAX_INCREMENT * (TL_BIC_B - 1))
		return cwnd * (TL_BIC_B - 1) / (cwnd - max);
	return cwnd / TL_BIC_MAX_INCREMENT;
}

/* Westwood+: a rate through two filters of 7/8, the first one's sample as its start. */
TL_INLINE void tl_westwood_filter(__u32 *sample, __u32 *bandwidth, __u32 rate)
{
	if (!*sample && !*bandwidth) {
		*sample = *bandwidth = rate;
		return;
	}
	*sample = tl_filter8(*sample, rate);
	*bandwidth = tl_filter8(*bandwidth, *sample);
}

/*
 * What an ACK out of order says has arrived: a segment for a duplicate, and less for the one that then covers them. bytes is
 * what it acknowledges, dup_bytes what duplicates have been counted for.
 */
TL_INLINE __u32 tl_westwood_acknowledged(__u32 bytes, __u32 mss, __u32 *dup_bytes)
{
	if (!bytes) {
		*dup_bytes += mss;
		bytes = mss;
	}
	if (bytes > mss) {
		if (*dup_bytes >= bytes) {
			*dup_bytes -= bytes;
			bytes = mss;
		} else {
			bytes -= *dup_bytes;
			*dup_bytes = 0;
		}
	}
	return bytes;
}

/* What the path carries in its least round-trip time: BWE x RTTmin, in packets. */
TL_INLINE __u32 tl_westwood_window(__u32 bandwidth_Bptick, __u32 rtt_min_ticks, __u32 mss)
{
	return tl_max((__u32)tl_mul_div(bandwidth_Bptick, rtt_min_ticks, mss), TL_MIN_CWND);
}

/* YeAH. */
#define TL_YEAH_ALPHA 80
#define TL_YEAH_PHI 8
#define TL_YEAH_RHO 16

/* The packets this flow has queued: what the window holds beyond the path without a queue. */
TL_INLINE __u32 tl_yeah_queue(__u32 cwnd, __u32 rtt_us, __u32 base_us)
{
	return (__u32)tl_mul_div(cwnd, rtt_us - base_us, rtt_us);
}

TL_INLINE __u32 tl_yeah_is_long(__u32 queue, __u32 rtt_us, __u32 base_us)
{
	return queue > TL_YEAH_ALPHA || rtt_us - base_us > base_us / TL_YEAH_PHI;
}

/* The window without its queue, but not below half of it, nor below Reno's. */
TL_INLINE __u32 tl_yeah_drained(__u32 cwnd, __u32 queue, __u32 reno_cwnd)
{
	return tl_max(cwnd - tl_min(queue, cwnd / 2), reno_cwnd);
}

/* While it is fast a loss is hardly its own queue's: it takes just that away. After rho slow rounds half of the window. */
TL_INLINE __u32 tl_yeah_left(__u32 cwnd, __u32 queue, __u32 slow_rounds)
{
	__u32 half = tl_max(cwnd / 2, 2U), less = half;

	if (slow_rounds < TL_YEAH_RHO)
		less = tl_max(tl_min(queue, half), cwnd / 8);
	return cwnd > less ? tl_max(cwnd - less, TL_MIN_CWND) : TL_MIN_CWND;
}

/* Veno: N, the packets this flow has queued, in half packets. */
#define TL_VENO_BETA_X2 6

TL_INLINE __u32 tl_veno_queue_x2(__u32 cwnd, __u32 rtt_us, __u32 base_us)
{
	return 2 * cwnd - (__u32)tl_mul_div(2ULL * cwnd, base_us, rtt_us);
}

/* A loss without a queue is taken for chance. */
TL_INLINE __u32 tl_veno_left(__u32 cwnd, __u32 queue_x2)
{
	return queue_x2 < TL_VENO_BETA_X2 ? tl_decrease(cwnd, 4, 5) : tl_decrease(cwnd, 1, 2);
}

/* Vegas: diff, the packets this flow has queued. */
#define TL_VEGAS_ALPHA 2
#define TL_VEGAS_BETA 4
#define TL_VEGAS_GAMMA 1

TL_INLINE __u32 tl_vegas_queue(__u32 cwnd, __u32 rtt_us, __u32 base_us)
{
	return (__u32)tl_mul_div(cwnd, rtt_us - base_us, base_us);
}

/* The window at the end of slow start: what the path holds without a queue, and one. */
TL_INLINE __u32 tl_vegas_exit(__u32 cwnd, __u32 rtt_us, __u32 base_us)
{
	return tl_min(cwnd, (__u32)tl_mul_div(cwnd, base_us, rtt_us) + 1);
}

/* The next round's window. */
TL_INLINE __u32 tl_vegas_next(__u32 cwnd, __u32 queue)
{
	if (queue > TL_VEGAS_BETA)
		return cwnd - 1;
	return queue < TL_VEGAS_ALPHA ? cwnd + 1 : cwnd;
}

/* H-TCP. Times are ticks of a clock with hz of them a second. */
#define TL_HTCP_ALPHA_ONE_X128 128
#define TL_HTCP_BETA_MIN_X128 64  /* 0.5 */
#define TL_HTCP_BETA_MAX_X128 102 /* 0.8 */

/* How fast to grow so long after a loss; rtt_min 0: not known, so not scaled by it. */
TL_INLINE __u32 tl_htcp_alpha_x128(__u32 ticks, __u32 hz, __u32 rtt_min_ticks, __u32 beta_x128)
{
	__u32 factor = 1, scale_x8;

	if (ticks > hz) {
		ticks -= hz;
		factor = 1 + (10 * ticks + (ticks / 2) * (ticks / 2) / hz) / hz;
	}
	if (rtt_min_ticks) {
		scale_x8 = (hz << 3) / (10 * rtt_min_ticks);
		scale_x8 = tl_max(scale_x8, 1U << 2);
		scale_x8 = tl_min(scale_x8, 10U << 3);
		factor = tl_max((factor << 3) / scale_x8, 1U);
	}
	return tl_max(2 * factor * (TL_HTCP_ALPHA_ONE_X128 - beta_x128), 1U);
}

/* What a loss leaves: so much that the queue is empty, and no more. */
TL_INLINE __u32 tl_htcp_beta_x128(__u32 rtt_min_ticks, __u32 rtt_max_ticks)
{
	__u32 beta = (rtt_min_ticks << 7) / rtt_max_ticks;

	return tl_min(tl_max(beta, TL_HTCP_BETA_MIN_X128), TL_HTCP_BETA_MAX_X128);
}

/* Two losses at about the same rate, a fifth more or less. */
TL_INLINE __u32 tl_htcp_is_steady(__u32 max_pps, __u32 old_max_pps)
{
	return 5ULL * max_pps >= 4ULL * old_max_pps && 5ULL * max_pps <= 6ULL * old_max_pps;
}

/* Hybla. rho = RTT / 25 ms, from the smoothed round-trip time in eighths. */
#define TL_HYBLA_RTT0_US 25000
#define TL_HYBLA_ONE_X8 8
#define TL_HYBLA_ONE_X128 128

TL_INLINE __u32 tl_hybla_rho_x8(__u32 rtt_us_x8)
{
	return tl_max(rtt_us_x8 / TL_HYBLA_RTT0_US, TL_HYBLA_ONE_X8);
}

TL_INLINE __u32 tl_hybla_rho2_x128(__u32 rho_x8)
{
	return rho_x8 * rho_x8 << 1;
}

/* 2^(eighths / 8), times 128, of the part behind the point. */
TL_INLINE __u32 tl_hybla_power_x128(__u32 eighths)
{
	switch (eighths & 7) {
	case 0: return 128;
	case 1: return 139;
	case 2: return 152;
	case 3: return 165;
	case 4: return 181;
	case 5: return 197;
	case 6: return 215;
	}
	return 234;
}

/* What an ACK adds to the window: 2^rho - 1 in slow start, then rho^2 / window. */
TL_INLINE __u32 tl_hybla_slow_start_x128(__u32 rho_x8)
{
	return (1U << tl_min(rho_x8 >> 3, 16U)) * tl_hybla_power_x128(rho_x8) - TL_HYBLA_ONE_X128;
}

TL_INLINE __u32 tl_hybla_avoid_x128(__u32 rho2_x128, __u32 cwnd)
{
	return cwnd ? rho2_x128 / cwnd : 0;
}

/* LP. */
#define TL_LP_PER_SECOND 1000 /* resolution of delays, and our own clock of timestamps */
#define TL_LP_THRESHOLD_PERCENT 15

/* One-way delays, the offset of the two clocks included. */
struct tl_lp_delay {
	__u32 owd_ms_x8;	/* smoothed; 0: none yet */
	__u32 owd_min_ms;
	__u32 owd_max_ms;
	__u32 owd_reserve_ms;	/* the next largest: one late packet is no measure */
};

/*
 * How fast the peer's clock goes: an average with the weight 1/64 for what is new. It is kept in whole ticks, so that what
 * is rounded off has it err to the low side: on the high side a clock of 1001 ticks would be taken for one of none.
 */
TL_INLINE __u32 tl_lp_hz(__u32 hz, __u32 remote_ticks, __u32 local_ticks)
{
	__u32 now = TL_LP_PER_SECOND * remote_ticks / local_ticks;

	return hz ? (__u32)(((__u64)hz * 63 + now) >> 6) : now;
}

/* Takes a delay in. Its weight in the smoothed one is 1/8. */
TL_INLINE void tl_lp_sample(struct tl_lp_delay *d, __u32 owd_ms)
{
	d->owd_min_ms = tl_min(d->owd_min_ms, owd_ms);
	if (owd_ms > d->owd_max_ms) {
		if (owd_ms > d->owd_reserve_ms) {
			d->owd_max_ms = d->owd_reserve_ms ? d->owd_reserve_ms : owd_ms;
			d->owd_reserve_ms = owd_ms;
		} else {
			d->owd_max_ms = owd_ms;
		}
	}
	d->owd_ms_x8 = d->owd_ms_x8 ? d->owd_ms_x8 + owd_ms - (d->owd_ms_x8 >> 3) : owd_ms << 3;
}

/* Whether someone else is there: the delay is above its least by more than 15 % of the span. */
TL_INLINE __u32 tl_lp_is_queued(const struct tl_lp_delay *d)
{
	__u32 owd_ms = d->owd_ms_x8 >> 3;

	return owd_ms && owd_ms > d->owd_min_ms + TL_LP_THRESHOLD_PERCENT * (d->owd_max_ms - d->owd_min_ms) / 100;
}

/* The measures begin anew around where they are: they must follow the path. */
TL_INLINE void tl_lp_begin_anew(struct tl_lp_delay *d)
{
	d->owd_min_ms = d->owd_ms_x8 >> 3;
	d->owd_max_ms = d->owd_ms_x8 >> 2;
	d->owd_reserve_ms = d->owd_ms_x8 >> 2;
}
