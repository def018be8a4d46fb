// SPDX-License-Identifier: Apache-2.0

// Package bpf holds the kernel side in C and the Go bindings that bpf2go writes from it. It is the only place that knows
// how maps are laid out: one object a hook, and one more, layout, that carries the maps and nothing else.
package bpf

// Every .c file carries //go:build ignore on its second line: the go tool must not take it for cgo. The asm headers of
// Debian's multiarch path are for the host; they only carry the fixed-size types.

//go:generate -command types go tool bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu"
//go:generate -command hook go tool bpf2go -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu"

//go:generate types -type tl_addr -type tl_where -type tl_priority -type tl_flow_kind -type tl_exclude_kind -type tl_window -type tl_window_why -type tl_loss_event layout layout.c
//go:generate hook connect connect.c
//go:generate hook connectNoMPTCP connect.c -- -DTL_NO_MPTCP
//go:generate hook -type tl_splice_key -type tl_splice_id -type tl_splice_count skmsg skmsg.c
//go:generate hook sockops sockops.c
//go:generate hook sockopsPlain sockops.c -- -DTL_NO_SPLICE
//go:generate hook mark mark.c
//go:generate hook dscp dscp.c
//go:generate hook gate gate.c
//go:generate hook release release.c
