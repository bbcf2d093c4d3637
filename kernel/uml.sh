#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds a user mode Linux from Debian's source of a series, with our rxe
# patches applied and rxe built in: a kernel that this machine's processor
# executes as it executes any program, where the test bed's machines are
# emulated instruction by instruction. `make bench-uml` is what it is for.
#
#   kernel/uml.sh SERIES
#
# Reads  build/kernels/SERIES
# Writes build/uml/linux, and build/uml/source, where the next build goes on.
set -euo pipefail

fail() {
	echo "kernel/uml.sh: $*" >&2
	exit 1
}

series=${1:?usage: kernel/uml.sh SERIES, such as 7.2}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$top/kernel/configure.sh"
build=${BUILD:-$top/build}
debian=$build/kernels/$series
out=$build/uml
source=$out/source
fragment=$top/kernel/uml.config
patches=("$top/kernel/patches/rxe-dmabuf/$series/"*.patch)
CC=${KERNEL_CC:-gcc-12}
[ -s "$debian/version" ] || fail "$debian/version is missing; fetch kernel $series first"
for tool in "$CC" make flex bison bc perl patch; do
	command -v "$tool" >/dev/null || fail "$tool is missing; run testbed/setup.sh"
done

mkdir -p "$out"
exec 9>"$out/.lock"
flock -w 10 9 || fail "another run holds $out/.lock"

inputs() {
	cat "$debian/version" "${BASH_SOURCE[0]}" "$top/kernel/configure.sh" "$fragment" "${patches[@]}"
	"$CC" --version
}
hash=$(inputs | sha256sum)
if [ -x "$out/linux" ] && [ "$(cat "$out/inputs" 2>/dev/null)" = "$hash" ]; then
	echo "user mode kernel: up to date in $out"
	exit 0
fi

# Patches are applied to a fresh tree only.
of=$(cat "$debian/version" "${patches[@]}" | sha256sum)
if [ "$(cat "$source/.patched" 2>/dev/null)" != "$of" ]; then
	rm -rf "$source"
	unpack "$debian/source.tar.xz" "$debian/version" "$source"
	for p in "${patches[@]}"; do
		patch -s -p1 -d "$source" <"$p" || fail "$p does not apply"
	done
	echo "$of" >"$source/.patched"
fi

m() { make -s -C "$source" ARCH=um CC="$CC" "$@"; }

configure "$source" "$fragment" defconfig m
echo "build a user mode kernel: some minutes"
m -j"$(nproc)" linux
cp "$source/linux" "$out/linux.new"
mv "$out/linux.new" "$out/linux"
echo "$hash" >"$out/inputs"
