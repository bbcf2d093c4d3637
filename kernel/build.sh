#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the patched rdma_rxe.ko of one kernel series.
#
#   kernel/build.sh SERIES        (6.12 or 6.1)
#
# Reads  build/kernels/SERIES/{headers,source.tar.xz,release,version}, which
#        `testbed fetch -kernel SERIES` puts there.
# Writes build/modules/SERIES/rdma_rxe.ko, and beside it a stamp with the hash
#        of what it was made from; nothing is done while that hash still holds.
#
# Only rdma_rxe is built. ib_core and ib_uverbs stay Debian's own: a rebuilt
# module has no BTF on 6.1, and tracing needs theirs.
set -euo pipefail

fail() {
	echo "kernel/build.sh: $*" >&2
	exit 1
}

[ $# -eq 1 ] || fail "usage: kernel/build.sh SERIES, such as 6.12"
series=$1
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
kdir=$kernel/headers/kdir
out=$build/modules/$series
module=$out/rdma_rxe.ko
stamp=$out/rdma_rxe.inputs
CC=${KERNEL_CC:-gcc-12}
rxe=drivers/infiniband/sw/rxe

shopt -s nullglob
patches=("$top/kernel/patches/rxe-dmabuf/$series/"*.patch)
shopt -u nullglob
[ ${#patches[@]} -gt 0 ] ||
	fail "no patches for kernel $series; there are: $(ls "$top/kernel/patches/rxe-dmabuf" | xargs)"

for f in release version source.tar.xz headers/kdir/Makefile; do
	[ -e "$kernel/$f" ] ||
		fail "$kernel/$f is missing; fetch the kernel first: build/bin/testbed fetch -kernel $series"
done
for tool in "$CC" make patch tar xz modinfo flock; do
	command -v "$tool" >/dev/null ||
		fail "$tool is missing; install gcc-12, make, patch, tar, xz-utils, kmod and util-linux"
done
# The headers carry a vmlinux where modules are to get BTF, and Kbuild then
# fails late and in a roundabout way without pahole.
if [ -e "$kdir/vmlinux" ]; then
	command -v pahole >/dev/null || fail "pahole is missing; install the package pahole"
fi

release=$(cat "$kernel/release")

# What the result depends on. Names are left out, so that the same tree
# elsewhere gives the same hash.
inputs() {
	cat "$kernel/release" "$kernel/version" "${BASH_SOURCE[0]}" "${patches[@]}"
	"$CC" --version
	if [ -e "$kdir/vmlinux" ]; then pahole --version; fi
}
hash=$(inputs | sha256sum | cut -d' ' -f1)

mkdir -p "$out"
exec 9>"$out/.lock"
flock -w 600 9 || fail "another build of kernel $series has held $out/.lock for 10 minutes"

# The stamp names the module by its content too: a half-written or foreign file
# never counts as built.
current() {
	[ -f "$module" ] && [ -f "$stamp" ] &&
		[ "$(cat "$stamp")" = "$hash $(sha256sum <"$module" | cut -d' ' -f1)" ]
}
if current; then
	echo "kernel $release: $module is up to date"
	exit 0
fi

work=$(mktemp -d "$out/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The last lines of a log are where a failed step says why.
step() {
	local what=$1 log=$work/log
	shift
	echo "kernel $release: $what"
	if ! "$@" >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		fail "$what failed for kernel $release"
	fi
}

extract() {
	mkdir "$work/src"
	tar -xf "$kernel/source.tar.xz" -C "$work/src" --strip-components=1 \
		--wildcards "*/$rxe/*"
}

apply() {
	local p
	for p in "${patches[@]}"; do
		patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" || return 1
	done
}

compile() {
	make -C "$kdir" M="$work/src/$rxe" CC="$CC" CONFIG_RDMA_RXE=m \
		-j"$(nproc)" modules &&
		strip --strip-debug "$work/src/$rxe/rdma_rxe.ko"
}

step "unpack $rxe from Debian's source $(cat "$kernel/version")" extract
step "apply ${#patches[@]} patches" apply
step "build rdma_rxe.ko" compile

ko=$work/src/$rxe/rdma_rxe.ko
vermagic=$(modinfo -F vermagic "$ko")
[ "${vermagic%% *}" = "$release" ] ||
	fail "the module was built for ${vermagic%% *}, the kernel is $release"

# The stamp goes first and comes last: at any time in between there is no
# stamp, and the next run builds again.
rm -f "$stamp"
mv -f "$ko" "$module"
echo "$hash $(sha256sum <"$module" | cut -d' ' -f1)" >"$stamp.new"
mv -f "$stamp.new" "$stamp"
echo "kernel $release: built $module"
