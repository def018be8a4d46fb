/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * HighSpeed: RFC 3649. Up to 38 packets as Reno; beyond, the larger the window the more a round trip adds, 1 to 73 packets,
 * and the less a loss takes, 1/2 to 1/11.
 *
 * Against the kernel's highspeed: the same. As there, growth counts ACKs and not what they acknowledge, so that delayed
 * ACKs make it slower than the RFC's.
 */
#include "cc.h"
#include "highspeed_table.h"

struct tl_highspeed {
	__u32 row; /* of the table; a round trip adds row + 1 packets */
};

TL_SHOW(struct tl_highspeed);

SEC("struct_ops")
void BPF_PROG(tl_highspeed_init, struct sock *sk)
{
	TL_STATE(struct tl_highspeed, sk)->row = 0;
	TL_SIGN(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_highspeed_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tl_highspeed *ca = TL_STATE(struct tl_highspeed, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 cwnd = tp->snd_cwnd;

	if (!tl_is_cwnd_limited(tp))
		return;
	if (tl_in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
		return;
	}
	/* It stays for the loss, as it was when the window last grew. */
	ca->row = tl_highspeed_row(cwnd);
	if (cwnd >= tp->snd_cwnd_clamp)
		return;
	tp->snd_cwnd_cnt += ca->row + 1;
	if (tp->snd_cwnd_cnt >= cwnd) {
		tp->snd_cwnd_cnt -= cwnd;
		tp->snd_cwnd = cwnd + 1;
	}
}

SEC("struct_ops")
__u32 BPF_PROG(tl_highspeed_ssthresh, struct sock *sk)
{
	return tl_highspeed_left(tl_tcp(sk)->snd_cwnd, TL_STATE(struct tl_highspeed, sk)->row);
}

TL_UNDO(tl_highspeed)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_highspeed = {
	.init		= (void *)tl_highspeed_init,
	.ssthresh	= (void *)tl_highspeed_ssthresh,
	.cong_avoid	= (void *)tl_highspeed_cong_avoid,
	.undo_cwnd	= (void *)tl_highspeed_undo_cwnd,
	.name		= "tl_highspeed",
};
