/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Arithmetic without floats. It knows nothing of the kernel, so that tests run it alone. */
#pragma once
#include <linux/types.h>

#define TL_MIN_CWND 2 /* packets: the least that any algorithm leaves after a loss */

#define TL_INLINE static inline __attribute__((always_inline))

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

/* A low-pass filter with the weight 1/8 for what is new. */
TL_INLINE __u32 tl_filter8(__u32 old, __u32 sample)
{
	return (__u32)((7 * (__u64)old + sample) >> 3);
}

/* A time as a number of ticks of the clock, as the kernel counts it: rounded up. */
TL_INLINE __u32 tl_ticks_of(__u32 us, __u32 tick_us)
{
	return (us + tick_us - 1) / tick_us;
}

/* What is left after a loss of 1 - keep/of of the window. */
TL_INLINE __u32 tl_decrease(__u32 cwnd, __u32 keep, __u32 of)
{
	return tl_max((__u32)((__u64)cwnd * keep / of), TL_MIN_CWND);
}

/* The same where what is lost is rounded down, and not what is left. */
TL_INLINE __u32 tl_decrease_by(__u32 cwnd, __u32 less, __u32 of)
{
	return tl_max(cwnd - (__u32)((__u64)cwnd * less / of), TL_MIN_CWND);
}

/*
 * Fast convergence, of BIC and CUBIC: where the window is to return to after a loss at cwnd. Who loses below the last
 * maximum makes room for others. A loss leaves keep/of.
 */
TL_INLINE __u32 tl_converge(__u32 cwnd, __u32 max_cwnd, __u32 keep, __u32 of)
{
	return cwnd < max_cwnd ? (__u32)tl_mul_div(cwnd, of + keep, 2 * of) : cwnd;
}
