/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps, in one place. Every program of an instance shares them: the loader creates each once and hands it to all
 * objects. Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d; ports are in host byte order; fields carry their units.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "reasons.h"
#include "window_maps.h"

#define TL_CC_NAME_MAX 16

struct tl_addr {
	__u8 b[16];
};

/* --- what the agent says of itself: one entry, rewritten with each heartbeat ------------------------------------- */

struct tl_agent {
	__u64 heartbeat_ns;	    /* CLOCK_MONOTONIC at the last heartbeat */
	__u64 heartbeat_max_age_ns; /* older than this: the engine hangs, connections go direct */
	__u64 netns_cookie;	    /* of the namespace the agent runs in; 0 matches no socket */
	__u32 steering;		    /* 1: steer; 0: draining */
	__u16 engine_port4;	    /* the engine's listener on 127.0.0.1; 0: none */
	__u16 engine_port6;	    /* on ::1; 0: none */
	__u16 peer_port;	    /* where peers connect; 0: nowhere */
	__u8 dscp;		    /* code point written on marked packets, 0 to 63 */
	__u8 slow_start_ns;	    /* Ns of PLP2: early slow start is cwnd <= ssthresh / Ns; 0 counts as 2 */
	__u32 mark_bit;		    /* the bit of skb->mark that carries the decision from cgroup_skb to tcx */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_agent);
} tl_agent SEC(".maps");

/*
 * --- rules: the longest prefix of the other end gives a class, (class, port) the rule; port 0 is any port
 * A reload writes the new rules beside the old ones, so there is room for twice as many as there may be.
 */

struct tl_prefix {
	__u32 prefixlen; /* of the 16-byte address: IPv4 /24 is 120 */
	struct tl_addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_prefix);
	__type(value, __u32);
} tl_class SEC(".maps");

struct tl_class_port {
	__u32 class_id;
	__u16 port;
	__u16 pad;
};

enum tl_priority { TL_PRIORITY_OFF = 0, TL_PRIORITY_RETRANSMIT = 1, TL_PRIORITY_SLOW_START = 2 };

struct tl_rule {
	__u32 rule_id;	    /* from 1, the rule's place in the configuration */
	__u32 peer_id;	    /* from 1; 0: no dedup, not steered */
	__u32 window_bytes; /* fixed receive window; 0: the kernel's auto-tuning */
	__u32 sndbuf_bytes; /* fixed send buffer; 0: the kernel's auto-tuning */
	__u64 pacing_Bps;   /* bytes per second; 0: no cap */
	__u8 priority;	    /* enum tl_priority */
	__u8 splice;	    /* 1: the sockmap fast path may be used */
	__u8 path_bits;	    /* prefix length of the path, of the 16-byte address */
	__u8 has_excludes;  /* 1: tl_exclude must be asked */
	__u8 auto_congestion; /* 1: chosen for each path, see tl_choice */
	__u8 window;	    /* enum tl_window */
	__u8 weight;	    /* on a reserved path, 1 to 100 */
	__u8 pad;
	char congestion[TL_CC_NAME_MAX]; /* empty: the kernel's default; auto: of paths without a choice */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_class_port);
	__type(value, struct tl_rule);
} tl_rule SEC(".maps");

/* Whose connections a rule does not steer. */
enum tl_exclude_kind { TL_EXCLUDE_CGROUP = 1, TL_EXCLUDE_USER = 2 };

struct tl_exclude_key {
	__u32 rule_id;
	__u32 kind; /* enum tl_exclude_kind */
	__u64 id;   /* cgroup id, or user id */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_exclude_key);
	__type(value, __u32);
} tl_exclude SEC(".maps");

/* --- where destinations are: filled from the routing table by netlink ------------------------------------------- */

enum tl_where { TL_WHERE_ROUTED = 0, TL_WHERE_LOCAL = 1, TL_WHERE_ONLINK = 2 };

struct tl_dest {
	__u32 where;		/* enum tl_where */
	struct tl_addr source;	/* the local address a direct connection would have; all zero: not known */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_prefix);
	__type(value, struct tl_dest);
} tl_dest SEC(".maps");

/* Single destinations that go direct: peers' listeners for good, failed dials for a while. */
struct tl_endpoint {
	struct tl_addr addr;
	__u16 port;
	__u16 pad;
};

struct tl_bypass {
	__u64 until_ns; /* CLOCK_MONOTONIC; 0: for good */
	__u32 reason;	/* enum tl_reason */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tl_endpoint);
	__type(value, struct tl_bypass);
} tl_bypass SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);   /* peer_id */
	__type(value, __u32); /* 1: up */
} tl_peer SEC(".maps");

/* --- steering ---------------------------------------------------------------------------------------------------- */

/* The agent's own sockets, by cookie: entered before connect(), or when a leg is taken into use. */
struct tl_own {
	__u32 rule_id;	/* of the flow the leg carries; 0: none yet */
	__u32 peer_id;	/* of that rule: the leg's traffic counts for the path to this peer */
	__u8 priority;	/* enum tl_priority, of that rule */
	__u8 leg;	/* 1: a connection to or from a peer; 0: a dialled destination */
	__u8 auto_congestion; /* 1: chosen for the path to the peer, of that rule */
	__u8 window;	/* enum tl_window, of that rule */
	__u8 weight;	/* of that rule, on a reserved path */
	__u8 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* socket cookie */
	__type(value, struct tl_own);
} tl_own SEC(".maps");

/* Where a steered connection wanted to go; written by connect, read and deleted by the engine at accept. */
struct tl_orig {
	struct tl_addr addr;   /* the destination */
	struct tl_addr source; /* the local address the application is shown; all zero: not known */
	__u64 time_ns;	       /* CLOCK_MONOTONIC */
	__u32 rule_id;
	__u16 port;
	__u16 family; /* AF_INET or AF_INET6: the family of the destination itself */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* the application socket's cookie */
	__type(value, struct tl_orig);
} tl_orig SEC(".maps");

/* The application's end as the engine sees it at accept, to the application socket's cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct tl_endpoint);
	__type(value, __u64);
} tl_client SEC(".maps");

/* Kept with each socket that a rule or the agent knows. */
struct tl_sock {
	struct tl_addr orig_addr;  /* steered: the destination the application asked for */
	struct tl_addr local_addr; /* steered: what getsockname shows; all zero: leave it */
	__u32 rule_id;
	__u32 reason;	    /* enum tl_reason: why not steered */
	__u16 orig_port;
	__u16 orig_family;
	__u8 steered;	    /* 1: this socket's connection goes to the engine */
	__u8 priority;	    /* enum tl_priority */
	__u8 own;	    /* 1: the agent's own; tl_own knows more */
	__u8 splice;	    /* 0: never; 1: redirect while the budget lasts; 2: over, plain TCP for good */
	__u32 splice_bytes; /* redirected so far */
	__u32 splice_msgs;
	__u64 splice_cookie; /* this socket's, and */
	__u32 splice_seq;   /* the number of the first byte it sends: by both the engine's end is found */
	__u32 pad;
	__u64 marked;	    /* packets on the wire marked so far */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tl_sock);
} tl_sock SEC(".maps");

/* How often each reason was given, by code. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TL_REASONS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} tl_reason SEC(".maps");

/* --- telemetry --------------------------------------------------------------------------------------------------- */

enum tl_flow_kind { TL_FLOW_PLAIN = 0, TL_FLOW_STEERED = 1, TL_FLOW_LEG = 2, TL_FLOW_DIALLED = 3 };

struct tl_flow {
	struct tl_addr local_addr;
	struct tl_addr remote_addr; /* steered: the destination the application asked for */
	__u16 local_port;
	__u16 remote_port;
	__u8 kind;	  /* enum tl_flow_kind */
	__u8 passive;	  /* 1: the other end connected */
	__u8 state;	  /* TCP_ESTABLISHED = 1 and so on */
	__u8 priority;	  /* enum tl_priority */
	__u32 rule_id;
	__u32 reason;	  /* enum tl_reason */
	__u32 peer_id;	  /* legs: whose path the traffic counts for */
	__u8 path_bits;	  /* prefix length of the path, of the 16-byte address; 0: counts for none */
	__u8 auto_congestion; /* 1: follows the choice of its path */
	__u8 early_congestion; /* 1: was set before the handshake, and begins anew after it */
	__u8 window;	  /* enum tl_window */
	__u64 start_ns;	  /* CLOCK_MONOTONIC */
	__u64 update_ns;
	__u32 srtt_us;
	__u32 rtt_min_us;
	__u32 cwnd_packets;
	__u32 ssthresh_packets; /* 0x7fffffff: none yet */
	__u32 mss_bytes;
	__u32 window_bytes;	/* the fixed receive window set; 0: auto */
	__u64 delivered_Bps;	/* the kernel's latest delivery-rate sample */
	__u64 bytes_acked;
	__u64 bytes_received;
	__u32 segs_out;
	__u32 retransmits;	/* segments */
	__u64 marked;		/* packets on the wire: a super-packet counts its segments */
	__s32 congestion_rc;	/* what setting the congestion control returned: 0 or -errno */
	__s32 window_rc;
	char congestion[TL_CC_NAME_MAX]; /* what the socket really has */
	__u32 choice_version;	/* of its path's choice, when that was last set; 0: never */
	__u32 loss_events;	/* retransmissions of one window count once */
	__u64 loss_until_bytes; /* of bytes_acked: until then a retransmission is of the latest event */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* socket cookie; deleted at CLOSE */
	__type(value, struct tl_flow);
} tl_flow SEC(".maps");

struct tl_path_key {
	struct tl_addr prefix; /* masked */
	__u32 prefix_bits;
	__u32 peer_id; /* 0: no peer */
};

struct tl_path {
	__u64 update_ns;
	__u64 flows;	/* since the path was first seen */
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 segs_out;
	__u64 retransmits;
	__u64 delivered_Bps; /* moving average, weight 1/8 */
	__u32 srtt_us;	     /* moving average, weight 1/8 */
	__u32 rtt_min_us;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct tl_path_key);
	__type(value, struct tl_path);
} tl_path SEC(".maps");

/* --- congestion controls chosen by path: user space chooses, flows of rules that leave it to that follow ---------- */

struct tl_choice {
	char congestion[TL_CC_NAME_MAX];
	__u32 version; /* from 1, no two choices have the same: another one is set on live flows, once */
	__u32 anew;    /* this version has live flows begin anew with an algorithm that they may have already */
	__u64 since_ns; /* CLOCK_MONOTONIC */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tl_path_key);
	__type(value, struct tl_choice);
} tl_choice SEC(".maps");

/* The first retransmission of a window, of a flow that follows its path's choice. */
struct tl_loss_event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 cookie;  /* of the socket */
	struct tl_path_key path;
	__u32 srtt_us;
	__u32 rtt_min_us;
	__u32 cwnd_packets; /* before the event */
	__u32 segs_out;
	__u32 retransmits; /* segments, this one included */
	__u32 rule_id;
	__u64 delivered_Bps; /* the latest sample before the event */
	__u64 bytes_acked;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024); /* bytes: some 2,900 events */
} tl_loss SEC(".maps");

/* Events for which tl_loss had no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} tl_loss_dropped SEC(".maps");

/* --- marks -------------------------------------------------------------------------------------------------------- */

/* The interfaces with the DSCP program on them. */
struct tl_iface {
	__u32 l2_bytes;	 /* length of the link header: 14 on ethernet, 0 on tun */
	__u32 pad;
	__u64 marked;	 /* packets whose code point was written */
	__u64 seen;	 /* packets that passed */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* ifindex */
	__type(value, struct tl_iface);
} tl_iface SEC(".maps");
