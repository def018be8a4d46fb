// SPDX-License-Identifier: Apache-2.0

// Package mathtest runs the congestion controls' arithmetic inside the kernel, so that tests can compare it with what the
// papers' formulas give.
package mathtest

//go:generate go tool bpf2go -target bpfel -type tl_function -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" math mathtest.c
