/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Arithmetic without floats. It knows nothing of the kernel, so that tests compile it for the host, too. */
#pragma once
#include <linux/types.h>

#define tl_min(a, b) ((a) < (b) ? (a) : (b))
#define tl_max(a, b) ((a) > (b) ? (a) : (b))

/* Whether a sequence number, or a time that wraps, is later than another. */
#define tl_after(a, b) ((__s32)((__u32)(b) - (__u32)(a)) < 0)

/* a * b / c without losing what a * b has beyond 32 bits; 0 where c is. */
#define tl_mul_div(a, b, c) ((c) ? (__u64)(a) * (b) / (c) : 0)

/*
 * The largest number whose cube is not above x, by Newton's method from above: the first guess is at most twice too large,
 * and seven steps bring it to the last of 22 bits. There are no branches on x: the verifier would follow each of them.
 */
static __attribute__((noinline)) __u32 tl_cbrt(__u64 x)
{
	__u64 rest = x, root;
	__u32 bits = 0, more;

	for (__u32 half = 32; half; half >>= 1) {
		more = (rest >> half != 0) * half;
		rest >>= more;
		bits += more;
	}
	root = 1ULL << (bits / 3 + 1); /* bits is that of x's highest bit */
	for (int i = 0; i < 7; i++)
		root = (2 * root + x / (root * root)) / 3;
	/* Where it swings between two neighbours, the lower one; the cube itself may have 65 bits. */
	return (__u32)(root - (x / (root * root) < root));
}

/* CUBIC's curve, C = 0.4 packets/s^3, times in 1/1024 s (RFC 9438, 4.2). */
#define TL_CUBIC_MAX_TIME (1 << 20) /* 1024 s: the curve is far beyond every window by then */

/* Until the curve is back where it fell from by distance: K = cbrt(distance / C). */
static inline __attribute__((always_inline)) __u32 tl_cubic_k(__u32 distance)
{
	return tl_cbrt((__u64)distance * 5 << 29); /* 1024^3 / 0.4 */
}

/* How far the curve is from its middle at a time from it: C * time^3. */
static inline __attribute__((always_inline)) __u32 tl_cubic_delta(__u64 time)
{
	time = tl_min(time, TL_CUBIC_MAX_TIME);
	return (__u32)(time * time * time / 5 >> 29);
}

/* Illinois: alpha from alpha_max at no queueing delay down to alpha_min at the largest, as k1 / (k2 + da). */
#define TL_ILLINOIS_ALPHA_MIN_X128 38	/* 0.3 */
#define TL_ILLINOIS_ALPHA_MAX_X128 1280 /* 10 */
#define TL_ILLINOIS_BETA_MIN_X64 8	/* 1/8 */
#define TL_ILLINOIS_BETA_MAX_X64 32	/* 1/2 */

/* da and dm, the mean and the largest queueing delay, are beyond d1 = dm / 100. */
static inline __attribute__((always_inline)) __u32 tl_illinois_alpha_x128(__u32 da_us, __u32 dm_us)
{
	__u32 d1_us = dm_us / 100;
	__u64 da = da_us - d1_us, dm = dm_us - d1_us;

	return (__u32)(dm * TL_ILLINOIS_ALPHA_MAX_X128 /
		       (dm + da * (TL_ILLINOIS_ALPHA_MAX_X128 - TL_ILLINOIS_ALPHA_MIN_X128) / TL_ILLINOIS_ALPHA_MIN_X128));
}

/* beta from 1/8 up to d2 = dm / 10, in a straight line to 1/2 at d3 = 0.8 dm. */
static inline __attribute__((always_inline)) __u32 tl_illinois_beta_x64(__u32 da_us, __u32 dm_us)
{
	__u64 d2 = dm_us / 10, d3 = (__u64)dm_us * 8 / 10;

	if (da_us <= d2)
		return TL_ILLINOIS_BETA_MIN_X64;
	if (da_us >= d3)
		return TL_ILLINOIS_BETA_MAX_X64;
	return (__u32)(TL_ILLINOIS_BETA_MIN_X64 +
		       (TL_ILLINOIS_BETA_MAX_X64 - TL_ILLINOIS_BETA_MIN_X64) * (da_us - d2) / (d3 - d2));
}

/* A low-pass filter with the weight 1/8 for what is new. */
static inline __attribute__((always_inline)) __u32 tl_filter8(__u32 old, __u32 sample)
{
	return (__u32)((7 * (__u64)old + sample) >> 3);
}

/* BIC: how many acknowledged packets make the window grow by one. max is where it fell from, 0: not known. */
#define TL_BIC_MAX_INCREMENT 16 /* packets per round trip */
#define TL_BIC_LOW_WINDOW 14	/* packets; below, as Reno */
#define TL_BIC_SMOOTH 20	/* round trips close to max, per BIC_B */
#define TL_BIC_B 4		/* the search halves to a quarter: 1/4 of the distance per round trip */

static inline __attribute__((always_inline)) __u32 tl_bic_count(__u32 cwnd, __u32 max)
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
