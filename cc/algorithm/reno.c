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

SEC("struct_ops")
__u32 BPF_PROG(tl_reno_ssthresh, struct sock *sk)
{
	return tl_decrease(tl_tcp(sk)->snd_cwnd, 1, 2);
}

SEC("struct_ops")
void BPF_PROG(tl_reno_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tl_tcp(sk);

	if (tl_is_cwnd_limited(tp))
		tl_reno_avoid(tp, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(tl_reno_undo_cwnd, struct sock *sk)
{
	return tl_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_reno = {
	.ssthresh	= (void *)tl_reno_ssthresh,
	.cong_avoid	= (void *)tl_reno_cong_avoid,
	.undo_cwnd	= (void *)tl_reno_undo_cwnd,
	.name		= "tl_reno",
};
