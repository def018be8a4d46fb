/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the sockmap fast path. They stand apart from maps.h because a kernel without CONFIG_BPF_STREAM_PARSER cannot
 * create them, and everything else must load there all the same.
 */
#pragma once
#include <bpf/bpf_core_read.h>
#include "maps.h"

/* The application's end as the engine sees it at accept; the engine takes it out by this key. */
struct tl_splice_key {
	struct tl_addr addr; /* the application's, as bound: loopback as a rule */
	__u16 port;	     /* the application's */
	__u16 engine_port;   /* another engine's connection from the same port is another connection */
};

/* The applications' ends: their writes pass the verdict in skmsg.c. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 16384);
	__type(key, struct tl_splice_key);
	__type(value, __u64);
} tl_apps SEC(".maps");

/* A connection, once and for all: ports come again, and so does a socket that is connected a second time. */
struct tl_splice_id {
	__u64 cookie; /* of the application's socket */
	__u32 seq;    /* of the first byte it sends */
	__u32 pad;
};

/*
 * The engine's ends: only a target. No program is attached, so that what the engine sends stays plain TCP. They do not go
 * by ports: the engine may still read from a connection when the next one has its ports, and a socket whose entry is
 * replaced loses its unread bytes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 16384);
	__type(key, struct tl_splice_id);
	__type(value, __u64);
} tl_engs SEC(".maps");

/* Connections whose application's end is in and whose engine's end is to follow. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct tl_splice_key);
	__type(value, struct tl_splice_id);
} tl_due SEC(".maps");

/* tl_sock.splice. There is no way from OVER back to ON: redirected bytes would overtake those in the TCP queue. */
enum tl_splice { TL_SPLICE_NEVER = 0, TL_SPLICE_ON = 1, TL_SPLICE_OVER = 2 };

/*
 * What one connection may have redirected in all its life. There is no back-pressure on redirected bytes, and each
 * message, however short, costs the kernel one object of about 1 KiB: so both are bounded.
 */
#define TL_SPLICE_BYTES (256 * 1024)
#define TL_SPLICE_MSGS 1024

struct tl_splice_count {
	__u64 entered;	      /* connections of which an end was put into tl_apps */
	__u64 redirected;     /* messages */
	__u64 redirected_bytes;
	__u64 spent;	      /* connections that came to the end of their budget */
	__u64 absent;	      /* connections whose other end was not in tl_engs */
	__u64 unfit;	      /* connections with bytes in the TCP queue, an upper-layer protocol or MSG_ZEROCOPY */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_splice_count);
} tl_spliced SEC(".maps");

/* What is read of the kernel's own socket; offsets come from the running kernel's BTF. */
struct sock_common___splice {
	unsigned long skc_flags;
} __attribute__((preserve_access_index));

struct sock___splice {
	struct sock_common___splice __sk_common;
} __attribute__((preserve_access_index));

struct inet_connection_sock___splice {
	const void *icsk_ulp_ops;
} __attribute__((preserve_access_index));

struct tcp_sock___splice {
	struct inet_connection_sock___splice inet_conn;
	__u32 write_seq;
	__u32 snd_nxt;
	__u64 bytes_sent;
} __attribute__((preserve_access_index));

enum sock_flags___splice { SOCK_ZEROCOPY___splice = 18 };

/*
 * Whether a connection can be redirected from here on without harm:
 * - nothing has gone by plain TCP: redirected bytes are read first. Data in the SYN is such a case, and a writer that
 *   waits inside write() for the connection is another: it goes on with plain TCP whatever the map says since.
 * - no upper-layer protocol: the verdict would see what kTLS has yet to encrypt.
 * - no MSG_ZEROCOPY: completions of redirected messages never come.
 */
static __always_inline int tl_splice_fit(struct bpf_sock *sk)
{
	struct tcp_sock___splice *tp = (void *)bpf_skc_to_tcp_sock(sk);
	unsigned long flags;

	if (!tp || tp->bytes_sent || tp->write_seq != tp->snd_nxt || tp->inet_conn.icsk_ulp_ops)
		return 0;
	flags = ((struct sock___splice *)tp)->__sk_common.skc_flags;
	return !(flags & (1UL << bpf_core_enum_value(enum sock_flags___splice, SOCK_ZEROCOPY___splice)));
}

static __always_inline struct tl_splice_count *tl_splice_counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tl_spliced, &zero);
}
