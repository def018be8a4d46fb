/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the algorithms know of the kernel's types: only the fields they use, found by name when an object is loaded
 * (CO-RE), so that one object fits every kernel that has the fields. Order and gaps mean nothing.
 */
#pragma once
#include <linux/types.h>

#ifndef __cplusplus
typedef _Bool bool;
#endif
#define true 1
#define false 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	unsigned long sk_pacing_rate; /* bytes per second */
	__u32 sk_pacing_status;	      /* 0: nobody paces */
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* enum tcp_ca_state */
	__u64 icsk_ca_priv[13]; /* the algorithm's own 104 bytes */
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u16 saw_tstamp : 1;
	__u32 rcv_tsval; /* the peer's clock when it sent this ACK */
	__u32 rcv_tsecr; /* our clock when what it acknowledges was sent */
};

struct tcp_sock {
	__u32 mss_cache;    /* bytes */
	__u32 snd_nxt;	    /* sequence numbers */
	__u32 snd_una;
	__u32 snd_wnd;
	__u32 snd_cwnd;	    /* packets, as everything below that is not marked */
	__u32 snd_cwnd_cnt; /* packets acknowledged since cwnd last grew */
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;   /* before the last reduction */
	__u32 packets_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 retrans_out;
	__u32 max_packets_out; /* in flight in the last window */
	__u32 delivered;    /* since the start */
	__u32 lost;	    /* since the start */
	__u32 lsndtime;	    /* when data was last sent, in jiffies */
	__u32 srtt_us;	    /* smoothed round-trip time, eighths of us */
	__u64 tcp_mstamp;   /* time of the ACK at hand, us */
	struct minmax rtt_min;
	__u8 is_cwnd_limited : 1; /* the window, and not the application, was the limit */
	__u8 tcp_usec_ts : 1;	  /* timestamps are in us (Linux 6.7) */
	struct tcp_options_received rx_opt;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us; /* -1: none */
	__u32 in_flight;
};

struct rate_sample {
	__s32 delivered;
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,
	CA_EVENT_CWND_RESTART = 1,
	CA_EVENT_COMPLETE_CWR = 2,
	CA_EVENT_LOSS = 3,
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

#pragma clang attribute pop

/* Matched with the kernel's member by member, by name: no CO-RE. A member that a kernel lacks is left out there. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*cwnd_event_tx_start)(struct sock *sk); /* takes CA_EVENT_TX_START from cwnd_event where it exists */
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};
