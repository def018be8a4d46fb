#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what generating the BPF objects and running the tests need beyond Go. Debian and Ubuntu.
set -eu
export DEBIAN_FRONTEND=noninteractive
packages="clang llvm libbpf-dev linux-libc-dev bpftool make git curl nginx-light iperf3 rsync iproute2 procps postgresql postgresql-client"
missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	apt-get update -q
	# shellcheck disable=SC2086 # one word a package
	apt-get install -y -q --no-install-recommends $missing
fi
