/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/* The algorithms' arithmetic as the kernel runs it, one function a call: tests set the numbers and read what came of them. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "../../algorithm/formulas.h"
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
	TL_DECREASE,
	TL_DECREASE_BY,
	TL_CONVERGE,
	TL_TICKS,
	TL_CUBIC_TARGET,
	TL_CUBIC_COUNT,
	TL_CUBIC_RENO_COUNT,
	TL_HYSTART_DELAY,
	TL_HYSTART_TRAIN,
	TL_ILLINOIS_NEXT_ALPHA,
	TL_WESTWOOD_FILTER,
	TL_WESTWOOD_ACKNOWLEDGED,
	TL_WESTWOOD_WINDOW,
	TL_YEAH_QUEUE,
	TL_YEAH_IS_LONG,
	TL_YEAH_DRAINED,
	TL_YEAH_LEFT,
	TL_VENO_QUEUE,
	TL_VENO_LEFT,
	TL_VEGAS_QUEUE,
	TL_VEGAS_EXIT,
	TL_VEGAS_NEXT,
	TL_HTCP_ALPHA,
	TL_HTCP_BETA,
	TL_HTCP_IS_STEADY,
	TL_HYBLA_RHO,
	TL_HYBLA_RHO2,
	TL_HYBLA_SLOW_START,
	TL_HYBLA_AVOID,
	TL_LP_HZ,
	TL_LP_RESET,
	TL_LP_SAMPLE,
	TL_LP_IS_QUEUED,
	TL_LP_BEGIN_ANEW,
	TL_HIGHSPEED_ROW,
	TL_HIGHSPEED_LEFT,
};

const enum tl_function *tl_function_type __attribute__((unused));

volatile __u32 tl_which = 0;
volatile __u64 tl_a = 0, tl_b = 0, tl_c = 0, tl_d = 0, tl_result = 0;
static struct tl_lp_delay delay; /* LP's measures, from one call to the next */

static __always_inline __u64 both(__u32 high, __u32 low)
{
	return (__u64)high << 32 | low;
}

/* What changes its arguments returns them, too: in the upper half, the second one first. */
static __always_inline __u64 next_alpha(__u32 alpha, __u32 da, __u32 dm, __u32 rounds)
{
	__u8 above = rounds >> 8, low = rounds;

	alpha = tl_illinois_next_alpha_x128(alpha, da, dm, &above, &low);
	return both(above << 8 | low, alpha);
}

static __always_inline __u64 filter(__u32 sample, __u32 bandwidth, __u32 rate)
{
	tl_westwood_filter(&sample, &bandwidth, rate);
	return both(sample, bandwidth);
}

static __always_inline __u64 acknowledged(__u32 bytes, __u32 mss, __u32 dup_bytes)
{
	bytes = tl_westwood_acknowledged(bytes, mss, &dup_bytes);
	return both(dup_bytes, bytes);
}

/* The smoothed delay in the upper half, and the largest. */
static __always_inline __u64 measure(__u32 owd_ms)
{
	tl_lp_sample(&delay, owd_ms);
	return both(delay.owd_ms_x8, delay.owd_max_ms);
}

static __always_inline __u64 forget(void)
{
	__builtin_memset(&delay, 0, sizeof(delay));
	delay.owd_min_ms = ~0U;
	return 0;
}

static __always_inline __u64 begin_anew(void)
{
	tl_lp_begin_anew(&delay);
	return both(delay.owd_min_ms, delay.owd_max_ms);
}

static __always_inline __u64 call_loss(__u64 a, __u64 b, __u64 c, __u64 d)
{
	switch (tl_which) {
	case TL_DECREASE: return tl_decrease(a, b, c);
	case TL_DECREASE_BY: return tl_decrease_by(a, b, c);
	case TL_CONVERGE: return tl_converge(a, b, c, d);
	case TL_TICKS: return tl_ticks_of(a, b);
	case TL_CUBIC_TARGET: return tl_cubic_target(a, b, c);
	case TL_CUBIC_COUNT: return tl_cubic_count(a, b);
	case TL_CUBIC_RENO_COUNT: return tl_cubic_reno_count(a);
	case TL_HYSTART_DELAY: return tl_hystart_delay_us(a);
	case TL_HYSTART_TRAIN: return tl_hystart_train_us(a, b, c);
	case TL_WESTWOOD_FILTER: return filter(a, b, c);
	case TL_WESTWOOD_ACKNOWLEDGED: return acknowledged(a, b, c);
	case TL_WESTWOOD_WINDOW: return tl_westwood_window(a, b, c);
	case TL_HYBLA_RHO: return tl_hybla_rho_x8(a);
	case TL_HYBLA_RHO2: return tl_hybla_rho2_x128(a);
	case TL_HYBLA_SLOW_START: return tl_hybla_slow_start_x128(a);
	case TL_HYBLA_AVOID: return tl_hybla_avoid_x128(a, b);
	case TL_HIGHSPEED_ROW: return tl_highspeed_row(a);
	case TL_HIGHSPEED_LEFT: return b < TL_HIGHSPEED_ROWS ? tl_highspeed_left(a, b) : 0;
	}
	return ~0ULL;
}

static __always_inline __u64 call_delay(__u64 a, __u64 b, __u64 c, __u64 d)
{
	switch (tl_which) {
	case TL_ILLINOIS_NEXT_ALPHA: return next_alpha(a, b, c, d);
	case TL_YEAH_QUEUE: return tl_yeah_queue(a, b, c);
	case TL_YEAH_IS_LONG: return tl_yeah_is_long(a, b, c);
	case TL_YEAH_DRAINED: return tl_yeah_drained(a, b, c);
	case TL_YEAH_LEFT: return tl_yeah_left(a, b, c);
	case TL_VENO_QUEUE: return tl_veno_queue_x2(a, b, c);
	case TL_VENO_LEFT: return tl_veno_left(a, b);
	case TL_VEGAS_QUEUE: return tl_vegas_queue(a, b, c);
	case TL_VEGAS_EXIT: return tl_vegas_exit(a, b, c);
	case TL_VEGAS_NEXT: return tl_vegas_next(a, b);
	case TL_HTCP_ALPHA: return tl_htcp_alpha_x128(a, b, c, d);
	case TL_HTCP_BETA: return tl_htcp_beta_x128(a, b);
	case TL_HTCP_IS_STEADY: return tl_htcp_is_steady(a, b);
	case TL_LP_HZ: return tl_lp_hz(a, b, c);
	case TL_LP_RESET: return forget();
	case TL_LP_SAMPLE: return measure(a);
	case TL_LP_IS_QUEUED: return tl_lp_is_queued(&delay);
	case TL_LP_BEGIN_ANEW: return begin_anew();
	}
	return ~0ULL;
}

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
	__u64 a = tl_a, b = tl_b, c = tl_c, d = tl_d, result = call(a, b, c);

	if (result == ~0ULL)
		result = call_loss(a, b, c, d);
	if (result == ~0ULL)
		result = call_delay(a, b, c, d);
	tl_result = result;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
