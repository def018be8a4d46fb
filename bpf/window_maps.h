/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Windows of rules, and the reservations whose rate and round-trip time they are made of. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Who decides on a flow's windows. */
enum tl_window { TL_WINDOW_KERNEL = 0, TL_WINDOW_FIXED = 1, TL_WINDOW_AUTO = 2, TL_WINDOW_RESERVED = 3 };

/* Why a flow has not all that the mode of its window gives. */
enum tl_window_why {
	TL_WHY_NOT = 0,		/* it has */
	TL_WHY_NEAR = 1,	/* this host or on-link: never touched */
	TL_WHY_NONE = 2,	/* no reservation is in force for the other end */
	TL_WHY_ENDED = 3,	/* the reservation it had has ended */
	TL_WHY_NO_ROOM = 4,	/* the host's maximum is below the window */
	TL_WHY_UNMEASURED = 5,	/* nothing is known of the path yet */
	TL_WHY_BLOATED = 6,	/* round trips on the path take long: queues are full already */
	TL_WHY_LOSSY = 7,	/* the path loses packets */
	TL_WHY_LATE = 8,	/* it began before the reservation: no initial window */
};

/* A reservation in force. The slot is the loader's choice; a slot that is used again has another generation. */
struct tl_reserved {
	__u64 rate_Bps;	    /* of the link layer, of all flows together */
	__u64 until_ns;	    /* CLOCK_MONOTONIC; from then on it is not honoured, whatever became of the agent; 0: no end */
	__u32 rtt_us;	    /* of the path without a queue */
	__u32 generation;   /* 0: the slot is empty */
	__u32 window_bytes; /* the receive buffer of a flow; 0: there is no room for it */
	__u32 squeeze;	    /* windows are halved so often: memory is scarce */
	__u32 sign;	    /* the low byte of every rate that is set: cleanup knows a killed agent's flows by it */
	char id[44];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32); /* slot */
	__type(value, struct tl_reserved);
} tl_reserved SEC(".maps");

struct tl_reserved_prefix {
	__u32 prefixlen; /* of the 16-byte address: IPv4 /24 is 120 */
	__u8 addr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_reserved_prefix);
	__type(value, __u32); /* slot */
} tl_reserved_net SEC(".maps");

/* The weights of the flows that send, or receive, by epochs of two round trips. */
struct tl_share {
	__u64 epoch;
	__u64 length_ns;
	__u32 before; /* of those that did in the epoch before, or do now and did not then */
	__u32 now;    /* of those that did in this epoch so far */
};

struct tl_reserved_use {
	struct bpf_spin_lock lock; /* guards the rest */
	__u32 generation;	   /* whose flows are counted */
	struct tl_share send;
	struct tl_share receive;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32); /* slot */
	__type(value, struct tl_reserved_use);
} tl_reserved_use SEC(".maps");

/* What of a flow is counted in a tl_share. */
struct tl_count {
	__u64 epoch;
	__u32 before;
	__u32 now;
	__u32 base; /* sequence number when this epoch was counted */
	__u32 seq;  /* the latest */
};

enum tl_reserved_state { TL_RES_NONE = 0, TL_RES_WAITING = 1, TL_RES_IN_FORCE = 2, TL_RES_LEAVING = 3 };

/* Kept with each socket under a rule with window: reserved. */
struct tl_reserved_sk {
	__u64 begin_ns;	   /* CLOCK_MONOTONIC */
	__u64 since_ns;	   /* of the state */
	__u64 share_Bps;   /* of the rate, for sending, of the link layer */
	__u64 receive_Bps; /* for receiving */
	__u32 slot;
	__u32 generation;
	__u32 pacing_Bps;    /* as set, of payload; 0: not */
	__u32 cwnd_packets;  /* the most, as set; 0: not */
	__u32 window_bytes;  /* the most advertised, as set; 0: not */
	__u32 initial_packets;
	__u32 weight;	     /* of the rule, TL_WEIGHT_UNIT for each */
	__u8 state;	     /* enum tl_reserved_state */
	__u8 v6;
	__u8 why;	     /* enum tl_window_why */
	__u8 pad;
	struct tl_count send;
	struct tl_count receive;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tl_reserved_sk);
} tl_reserved_sk SEC(".maps");

/* What a flow has of its window's mode, for people: beside tl_flow, which is as large as a program's stack bears. */
struct tl_flow_window {
	__u64 share_Bps;   /* of a reservation's rate, for sending */
	__u64 receive_Bps; /* and for receiving */
	__u32 generation;  /* of the reservation in force; 0: none */
	__u32 pacing_Bps;  /* as set for the share */
	__u32 initial_packets;	/* the initial congestion window set; 0: the kernel's */
	__u32 most_packets;	/* the most of the congestion window, as set for the share */
	__u32 advertised_bytes; /* the most of the advertised window, as set for the share; 0: the buffer's */
	__u8 why;		/* enum tl_window_why */
	__u8 leaving;		/* 1: the reservation is over, and the window is coming down */
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* socket cookie; deleted at CLOSE */
	__type(value, struct tl_flow_window);
} tl_flow_window SEC(".maps");
