#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles each algorithm here into an object with its Go binding: reno.c becomes LoadReno.
set -eu
for c in *.c; do
	name=${c%.c}
	first=$(printf %.1s "$name" | tr a-z A-Z)
	go tool bpf2go -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" \
		"$first${name#?}" "$c"
done
