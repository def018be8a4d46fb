/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Steering's part in sockops: binds the application's end of a steered connection to its original destination. */
#pragma once
#include "maps.h"

static __always_inline void tl_steer_sockops(struct bpf_sock_ops *ctx)
{
}
