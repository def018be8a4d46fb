/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Arithmetic without floats. It knows nothing of the kernel, so that tests compile it for the host, too. */
#pragma once
#include <linux/types.h>

#define tl_min(a, b) ((a) < (b) ? (a) : (b))
#define tl_max(a, b) ((a) > (b) ? (a) : (b))
