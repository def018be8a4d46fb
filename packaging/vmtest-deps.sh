#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what tests in virtual machines need beyond packaging/deps.sh: the machine, what its first file system is made with,
# and what the kernel without BTF is built with. Debian and Ubuntu.
set -eu
export DEBIAN_FRONTEND=noninteractive
packages="qemu-system-x86 busybox-static cpio kmod xz-utils zstd udev debian-archive-keyring binutils gcc libc6-dev make flex bison bc libelf-dev libssl-dev"
missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	apt-get update -q
	# shellcheck disable=SC2086 # one word a package
	apt-get install -y -q --no-install-recommends $missing
fi

# virtme-ng boots a kernel by hand on this machine's own files; the tests do without. Debian 12 has none, so it is taken
# from trixie: with an apt of its own, such that the machine's sources and lists stay as they are.
command -v vng >/dev/null && exit 0
if apt-cache show virtme-ng >/dev/null 2>&1 && apt-get install -y -q --no-install-recommends virtme-ng; then
	exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/state" "$dir/lists/partial" "$dir/cache/archives/partial"
: >"$dir/state/status"
mirror=$(apt-get update --print-uris 2>/dev/null | sed -n "s|^'\([^']*debian\)/dists/[a-z]*/InRelease'.*|\1|p" | head -n 1)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [target=Packages lang=none signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} trixie main" >"$dir/sources.list"
cat >"$dir/apt.conf" <<EOF
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$dir/state";
Dir::State::lists "$dir/lists";
Dir::State::status "$dir/state/status";
Dir::Cache "$dir/cache";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
EOF
if (cd "$dir" && apt-get -q -c apt.conf update && apt-get -q -c apt.conf download virtme-ng) &&
	apt-get install -y -q --no-install-recommends "$dir"/virtme-ng_*.deb; then
	exit 0
fi
echo "vmtest-deps.sh: no virtme-ng from trixie (see above); going on without, since the tests do not need it" >&2
