/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/*
 * Westwood+: L. A. Grieco, S. Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP
 * congestion control", 2004. As Reno, but after a loss the window is what the path has been seen to carry.
 *
 *   BWE        bytes acknowledged per round, once per round trip but at most every 50 ms, through two low-pass filters
 *              that keep 7/8 of the old value                                         bytes per tick
 *   ssthresh   BWE x the least round-trip time, at least 2                            packets
 *
 * Against the kernel's westwood: the same. That includes its clock: round-trip times are whole ticks, rounded up. On short
 * paths this makes the window after a loss larger than the formula's, by up to a tick's worth, and is part of how the
 * module behaves. The paper of the twelve variants keeps 0.9 of the old value where the module keeps 7/8.
 */
#include "tick.h"

#define ROUND_MIN_US 50000		/* of samples of BWE */
#define FIRST_RTT_US (20 * TL_USEC_PER_SEC)

enum { CA_ACK_SLOWPATH = 1 };

struct tl_westwood {
	__u32 sample_Bptick;	/* bytes per tick: acknowledged, through one filter */
	__u32 bandwidth_Bptick;	/* and through the second: BWE */
	__u32 round_tick;	/* when the sample at hand began */
	__u32 bytes;		/* acknowledged in it */
	__u32 una;		/* acknowledged when last looked at */
	__u32 dup_bytes;	/* counted for duplicate ACKs, not to be counted again by the ACK that covers them */
	__u32 rtt_ticks;
	__u32 rtt_min_ticks;
	__u8 first_ack;		/* none was seen yet */
	__u8 forget_rtt_min;	/* a time-out: the path may be another */
};

TL_SHOW(struct tl_westwood);

SEC("struct_ops")
void BPF_PROG(tl_westwood_init, struct sock *sk)
{
	struct tl_westwood *ca = TL_STATE(struct tl_westwood, sk);

	ca->sample_Bptick = 0;
	ca->bandwidth_Bptick = 0;
	ca->bytes = 0;
	ca->dup_bytes = 0;
	ca->rtt_ticks = ca->rtt_min_ticks = tl_ticks(FIRST_RTT_US);
	ca->round_tick = tl_now_tick();
	ca->una = tl_tcp(sk)->snd_una;
	ca->first_ack = 1;
	ca->forget_rtt_min = 1;
	TL_SIGN(sk);
}

SEC("struct_ops")
void BPF_PROG(tl_westwood_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	if (sample->rtt_us > 0)
		TL_STATE(struct tl_westwood, sk)->rtt_ticks = tl_ticks(sample->rtt_us);
}

/* Ends a sample that is long enough. */
static __always_inline void sample(struct tcp_sock *tp, struct tl_westwood *ca)
{
	__u32 now = tl_now_tick(), ticks = now - ca->round_tick, rate_Bptick;

	if (ca->first_ack) { /* what the handshake has acknowledged is no data */
		ca->una = tp->snd_una;
		ca->first_ack = 0;
	}
	if (!ca->rtt_ticks || ticks <= ca->rtt_ticks || ticks <= ROUND_MIN_US / tl_tick_us)
		return;
	rate_Bptick = ca->bytes / ticks;
	tl_westwood_filter(&ca->sample_Bptick, &ca->bandwidth_Bptick, rate_Bptick);
	ca->bytes = 0;
	ca->round_tick = now;
}

SEC("struct_ops")
void BPF_PROG(tl_westwood_in_ack_event, struct sock *sk, __u32 flags)
{
	struct tl_westwood *ca = TL_STATE(struct tl_westwood, sk);
	struct tcp_sock *tp = tl_tcp(sk);
	__u32 bytes;

	sample(tp, ca);
	bytes = tp->snd_una - ca->una;
	if (flags & CA_ACK_SLOWPATH)
		bytes = tl_westwood_acknowledged(bytes, tp->mss_cache, &ca->dup_bytes);
	ca->bytes += bytes;
	ca->una = tp->snd_una;
	if (ca->forget_rtt_min) {
		ca->rtt_min_ticks = ca->rtt_ticks;
		ca->forget_rtt_min = 0;
	} else {
		ca->rtt_min_ticks = tl_min(ca->rtt_min_ticks, ca->rtt_ticks);
	}
}

static __always_inline __u32 window(const struct tcp_sock *tp, const struct tl_westwood *ca)
{
	return tl_westwood_window(ca->bandwidth_Bptick, ca->rtt_min_ticks, tp->mss_cache);
}

SEC("struct_ops")
void BPF_PROG(tl_westwood_cwnd_event, struct sock *sk, __u32 event)
{
	struct tl_westwood *ca = TL_STATE(struct tl_westwood, sk);
	struct tcp_sock *tp = tl_tcp(sk);

	if (event == CA_EVENT_COMPLETE_CWR) {
		tp->snd_ssthresh = window(tp, ca);
		tp->snd_cwnd = tp->snd_ssthresh;
	} else if (event == CA_EVENT_LOSS) {
		tp->snd_ssthresh = window(tp, ca);
		ca->forget_rtt_min = 1;
	}
}

/* While a loss is being repaired the window goes down as Reno's; what it is then is set when that is complete. */
TL_HALVE(tl_westwood)
TL_GROW_AS_RENO(tl_westwood)
TL_UNDO(tl_westwood)

SEC(".struct_ops.link")
struct tcp_congestion_ops tl_westwood = {
	.init		= (void *)tl_westwood_init,
	.ssthresh	= (void *)tl_westwood_ssthresh,
	.cong_avoid	= (void *)tl_westwood_cong_avoid,
	.cwnd_event	= (void *)tl_westwood_cwnd_event,
	.in_ack_event	= (void *)tl_westwood_in_ack_event,
	.pkts_acked	= (void *)tl_westwood_pkts_acked,
	.undo_cwnd	= (void *)tl_westwood_undo_cwnd,
	.name		= "tl_westwood",
};
