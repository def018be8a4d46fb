/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's clock of ticks (jiffies). Programs cannot ask how long a tick is, so whoever loads them says. */
#pragma once
#include "cc.h"

const volatile __u32 tl_tick_us = 4000;

static __always_inline __u32 tl_ticks(__u32 us)
{
	return tl_ticks_of(us, tl_tick_us);
}

static __always_inline __u32 tl_now_tick(void)
{
	return (__u32)bpf_jiffies64();
}

/* Since data was last sent; to be asked before any is. */
static __always_inline __u64 tl_idle_us(const struct tcp_sock *tp)
{
	return (__u64)(tl_now_tick() - tp->lsndtime) * tl_tick_us;
}
