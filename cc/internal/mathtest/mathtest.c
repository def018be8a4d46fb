/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/* The algorithms' arithmetic as the kernel runs it, one function a call: tests set the numbers and read what came of them. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "../../algorithm/math.h"
#include "../../algorithm/highspeed_table.h"

enum tl_function {
	TL_CBRT,
	TL_CUBIC_K,
	TL_CUBIC_DELTA,
	TL_ILLINOIS_ALPHA,
	TL_ILLINOIS_BETA,
	TL_FILTER8,
	TL_BIC_COUNT,
	TL_MUL_DIV,
	TL_AFTER,
	TL_HIGHSPEED_CWND,
	TL_HIGHSPEED_LESS,
};

const enum tl_function *tl_function_type __attribute__((unused));

volatile __u32 tl_which = 0;
volatile __u64 tl_a = 0, tl_b = 0, tl_c = 0, tl_result = 0;

static __always_inline __u64 call(__u64 a, __u64 b, __u64 c)
{
	switch (tl_which) {
	case TL_CBRT: return tl_cbrt(a);
	case TL_CUBIC_K: return tl_cubic_k(a);
	case TL_CUBIC_DELTA: return tl_cubic_delta(a);
	case TL_ILLINOIS_ALPHA: return tl_illinois_alpha_x128(a, b);
	case TL_ILLINOIS_BETA: return tl_illinois_beta_x64(a, b);
	case TL_FILTER8: return tl_filter8(a, b);
	case TL_BIC_COUNT: return tl_bic_count(a, b);
	case TL_MUL_DIV: return tl_mul_div((__u32)a, (__u32)b, (__u32)c);
	case TL_AFTER: return tl_after(a, b);
	case TL_HIGHSPEED_CWND: return a < TL_HIGHSPEED_ROWS ? tl_highspeed_table[a].cwnd : 0;
	case TL_HIGHSPEED_LESS: return a < TL_HIGHSPEED_ROWS ? tl_highspeed_table[a].less_x256 : 0;
	}
	return ~0ULL;
}

SEC("socket")
int tl_math(void *ctx)
{
	tl_result = call(tl_a, tl_b, tl_c);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
