#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the test modules of one kernel series, softgpu.ko, testimporter.ko and, for 7.3
# and later, testnic.ko.
#
#   kernel/softgpu/build.sh SERIES [MODULE...]
#
# Reads  build/kernels/SERIES, which `testbed fetch` or kernel/buildroot.sh
#        writes. Where build/roots/SERIES exists, the script uses its compiler.
# Writes build/modules/SERIES/MODULE.ko, and a stamp with the hash of its
#        inputs. The script does nothing while that hash still matches.
# SPARSE=1 also runs sparse, and fails if it reports something.
set -euo pipefail

fail() {
	echo "kernel/softgpu/build.sh: $*" >&2
	exit 1
}

[ $# -ge 1 ] || fail "usage: kernel/softgpu/build.sh SERIES [MODULE...], such as 6.12"
series=$1
shift
modules=("$@")
if [ ${#modules[@]} -eq 0 ]; then
	modules=(softgpu testimporter)
	case $series in
	6.* | 7.[0-2]) ;;
	*) modules+=(testnic) ;;
	esac
fi
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
out=$build/modules/$series
for f in release version inputs; do
	[ -s "$kernel/$f" ] || fail "$kernel/$f is missing; fetch kernel $series first"
done
release=$(cat "$kernel/release")

# The modules of a series that has a build root are compiled in that root.
if [ -d "$build/roots/$series" ]; then
	kdir=/usr/src/linux-headers-$release
	compiler=()
	run() { "$top/kernel/buildroot.sh" "$series" "$@"; }
else
	kdir=$kernel/headers/kdir
	compiler=(CC="${KERNEL_CC:-gcc-12}")
	run() { "$@"; }
fi

. "$top/kernel/sparse.sh"

mkdir -p "$out"
exec 9>"$out/.lock-softgpu"
flock -w 600 9 || fail "another build has held $out/.lock-softgpu for 10 minutes"

inputs() {
	# The kernel's inputs too: a kernel of kasan.sh keeps its name when its
	# configuration changes, which changes the types that modules use.
	cat "$kernel/inputs"
	cat "$kernel/release" "$kernel/version" "${BASH_SOURCE[0]}"
	(cd "$top/kernel/$1" && find . -maxdepth 1 -name '*.[ch]' -o -name Makefile | sort | xargs sha256sum)
}

build_one() {
	local name=$1 hash stamp=$out/$1.inputs
	hash=$(inputs "$name" | sha256sum | cut -d' ' -f1)
	if [ -z "${SPARSE:-}" ] && [ -f "$out/$name.ko" ] && [ -f "$stamp" ] &&
		[ "$(cat "$stamp")" = "$hash $(sha256sum <"$out/$name.ko" | cut -d' ' -f1)" ]; then
		echo "kernel $release: $out/$name.ko is up to date"
		return
	fi
	work=$(mktemp -d "$out/.$name.XXXXXX")
	cp "$top/kernel/$name"/*.[ch] "$top/kernel/$name/Makefile" "$work/"
	echo "kernel $release: build $name.ko"
	if ! run make -C "$kdir" M="$work" "${compiler[@]}" KCFLAGS=-Werror \
		"${sparse_args[@]}" -j"$(nproc)" modules >"$work/log" 2>&1; then
		tail -n 60 "$work/log" >&2
		fail "building $name failed for kernel $release"
	fi
	! sparse_found "$work/log" "$work" >&2 || fail "sparse has found something in $name"
	"${STRIP:-strip}" --strip-debug "$work/$name.ko"
	[ "$(modinfo -F vermagic "$work/$name.ko" | cut -d' ' -f1)" = "$release" ] ||
		fail "$name.ko was built for another kernel than $release"
	rm -f "$stamp"
	mv -f "$work/$name.ko" "$out/$name.ko"
	echo "$hash $(sha256sum <"$out/$name.ko" | cut -d' ' -f1)" >"$stamp.new"
	mv -f "$stamp.new" "$stamp"
	rm -rf "$work"
	echo "kernel $release: built $out/$name.ko"
}

work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
for m in "${modules[@]}"; do
	build_one "$m"
done
