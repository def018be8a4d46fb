/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore
/* No programs: the maps alone, from which the loader creates each once and Go takes its types. */
#include "maps.h"

/* A type that no map mentions would not be in the object's BTF. */
struct tl_addr *tl_keep_addr __attribute__((unused));
enum tl_where *tl_keep_where __attribute__((unused));
enum tl_priority *tl_keep_priority __attribute__((unused));
enum tl_flow_kind *tl_keep_flow_kind __attribute__((unused));
enum tl_exclude_kind *tl_keep_exclude_kind __attribute__((unused));
struct tl_loss_event *tl_keep_loss_event __attribute__((unused));
enum tl_window *tl_keep_window __attribute__((unused));
enum tl_window_why *tl_keep_window_why __attribute__((unused));
