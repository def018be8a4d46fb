/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Reno: RFC 5681, with appropriate byte counting (RFC 3465) as slow start doubles and avoidance adds by what was
 * acknowledged and not by the number of ACKs. Fast recovery (RFC 6582, 6675) is the kernel's, as for every algorithm.
 *
 *   increase  1 packet per round trip
 *   decrease  1/2 of the window
 *
 * Against the kernel's reno: the same.
 */
#include "cc.h"

TL_HALVE(tl_reno)
TL_GROW_AS_RENO(tl_reno)
TL_UNDO(tl_reno)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_reno = {
	.ssthresh	= (void *)tl_reno_ssthresh,
	.cong_avoid	= (void *)tl_reno_cong_avoid,
	.undo_cwnd	= (void *)tl_reno_undo_cwnd,
	.name		= "tl_reno",
};
