#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the patched rdma_rxe.ko of one kernel series, and testexporter.ko.
#
#   kernel/build.sh SERIES        (7.3, 7.2, 6.12 or 6.1)
#   kernel/build.sh SERIES rereg  the RDMA core and rdma_rxe with
#                                 patches/rdma-rereg as well (7.3 or 7.2)
#
# Reads  build/kernels/SERIES/{headers,source.tar.xz,release,version}, which
#        `testbed fetch -kernel SERIES` or kernel/buildroot.sh writes. Where
#        build/roots/SERIES exists, the script uses its compiler.
# Writes build/modules/SERIES/{rdma_rxe,testexporter}.ko, and beside them a stamp
#        with the hash of their inputs. The script does nothing while that hash
#        still matches. With rereg: build/modules/SERIES/rereg/*.ko.
#
# SPARSE=1 builds in any case, with sparse, and fails if it reports something.
#
# Of Debian's modules the script builds rdma_rxe only. ib_core and ib_uverbs
# stay Debian's own: a rebuilt module has no BTF on 6.1, and tracing needs BTF.
# With rereg it builds all modules of the RDMA core, because patches/rdma-rereg
# changes a structure that they share.
set -euo pipefail

fail() {
	echo "kernel/build.sh: $*" >&2
	exit 1
}

[ $# -eq 1 ] || { [ $# -eq 2 ] && [ "$2" = rereg ]; } || fail "usage: kernel/build.sh SERIES [rereg], such as 6.12"
series=$1
rereg=${2-}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
out=$build/modules/$series
stamp=$out/inputs
modules=(rdma_rxe.ko testexporter.ko)
rxe=drivers/infiniband/sw/rxe
exporter=$top/kernel/testexporter
sources=("$rxe")
if [ -n "$rereg" ]; then
	out=$out/rereg
	stamp=$out/inputs
	core=drivers/infiniband/core
	# In the order of loading.
	modules=(ib_core.ko ib_cm.ko iw_cm.ko rdma_cm.ko ib_umad.ko ib_uverbs_support.ko ib_uverbs.ko rdma_ucm.ko rdma_rxe.ko)
	sources+=("$core" include/rdma include/uapi/rdma)
fi

# Adds the patches of a folder for the series.
patches=()
add_patches() {
	local here
	shopt -s nullglob
	here=("$top/kernel/patches/$1/$series/"*.patch)
	shopt -u nullglob
	[ ${#here[@]} -gt 0 ] ||
		fail "no patches for kernel $series in kernel/patches/$1; there are: $(ls "$top/kernel/patches/$1" | xargs)"
	patches+=("${here[@]}")
}
add_patches rxe-dmabuf
[ -z "$rereg" ] || add_patches rdma-rereg

for f in release version inputs source.tar.xz; do
	[ -e "$kernel/$f" ] ||
		fail "$kernel/$f is missing; fetch the kernel first: build/bin/testbed fetch -kernel $series"
done
release=$(cat "$kernel/release")

# The modules of a series that has a build root are compiled in that root.
if [ -d "$build/roots/$series" ]; then
	kdir=/usr/src/linux-headers-$release
	compiler=()
	toolchain="root $(cat "$build/roots/$series/.inputs")"
	tools=()
	run() { BUILD=$build "$top/kernel/buildroot.sh" "$series" "$@"; }
else
	kdir=$kernel/headers/kdir
	CC=${KERNEL_CC:-gcc-12}
	compiler=(CC="$CC")
	tools=("$CC" make)
	run() { "$@"; }
	[ -e "$kdir/Makefile" ] || fail "$kdir is missing; fetch the kernel first: build/bin/testbed fetch -kernel $series"
fi
for tool in "${tools[@]}" patch tar xz modinfo flock strip; do
	command -v "$tool" >/dev/null ||
		fail "$tool is missing; install gcc-12, make, patch, tar, xz-utils, kmod, util-linux and binutils"
done
if [ ${#compiler[@]} -gt 0 ]; then
	toolchain=$("$CC" --version)
	# If modules are to get BTF, the headers have a vmlinux. Without pahole Kbuild
	# then fails late, with an error that does not name pahole.
	if [ -e "$kdir/vmlinux" ]; then
		command -v pahole >/dev/null || fail "pahole is missing; install the package pahole"
		toolchain+=$(pahole --version)
	fi
fi

# Prints all that the modules are built from, without the names of files, so
# that the same tree in another directory gives the same hash.
inputs() {
	# The kernel's inputs too: a kernel of kasan.sh keeps its name when its
	# configuration changes, which changes the types that modules use.
	cat "$kernel/inputs"
	cat "$kernel/release" "$kernel/version" "${BASH_SOURCE[0]}" "${patches[@]}" \
		"$exporter/Makefile" "$exporter/"*.[ch]
	echo "$toolchain"
}
hash=$(inputs | sha256sum | cut -d' ' -f1)

. "$top/kernel/sparse.sh"

mkdir -p "$out"
exec 9>"$out/.lock"
flock -w 600 9 || fail "another build of kernel $series has held $out/.lock for 10 minutes"

# The stamp has hashes of the modules too: a file that is half-written, or that
# another build made, does not match it.
state() {
	echo "$hash"
	(cd "$out" && sha256sum "${modules[@]}" 2>/dev/null) || true
}
if [ -z "${SPARSE:-}" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(state)" ]; then
	echo "kernel $release: the modules in $out are up to date"
	exit 0
fi

rm -rf "$out"/.work.* # of a build that was killed
work=$(mktemp -d "$out/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# step WHAT COMMAND... runs a command, and on failure prints the end of its log.
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
		--wildcards "${sources[@]/#/*/}"
}

apply() {
	local p
	for p in "${patches[@]}"; do
		patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" || return 1
	done
}

# compile DIRECTORY MODULE...
# sparse prints into the step's log. The step fails if sparse reports something.
compile() {
	# WARN() shows paths, and the working directory has a random name.
	local dir=$1
	shift
	run make -C "$kdir" M="$dir" "${compiler[@]}" KCFLAGS="-fmacro-prefix-map=$work/=" \
		CONFIG_RDMA_RXE=m "${headers[@]}" "${sparse_args[@]}" -j"$(nproc)" modules &&
		! sparse_found "$work/log" "$dir" && "${STRIP:-strip}" --strip-debug "${@/#/$dir/}" && mv "${@/#/$dir/}" "$work/"
}
headers=()

step "unpack $rxe from Debian's source $(cat "$kernel/version")" extract
step "apply ${#patches[@]} patches" apply
if [ -n "$rereg" ]; then
	# The patched headers come before those of the kernel.
	headers=(NOSTDINC_FLAGS="-nostdinc -I$work/src/include -I$work/src/include/uapi")
	# Of the core, sparse checks only the files that the patches change.
	sparse_files=$(sed -n 's,^+++ b/'"$core"'/,,p' "${patches[@]}" | sort -u | paste -sd '|')
	step "build the RDMA core" compile "$work/src/$core" "${modules[@]:0:${#modules[@]}-1}"
	unset sparse_files
	headers+=(KBUILD_EXTRA_SYMBOLS="$work/src/$core/Module.symvers")
fi
step "build rdma_rxe.ko" compile "$work/src/$rxe" rdma_rxe.ko
if [ -z "$rereg" ]; then
	cp -r "$exporter" "$work/exporter"
	step "build testexporter.ko" compile "$work/exporter" testexporter.ko
fi

for m in "${modules[@]}"; do
	vermagic=$(modinfo -F vermagic "$work/$m")
	[ "${vermagic%% *}" = "$release" ] ||
		fail "$m was built for ${vermagic%% *}, the kernel is $release"
done

# The stamp is removed first and written last: if this script is killed in
# between, there is no stamp, and the next run builds again.
rm -f "$stamp"
for m in "${modules[@]}"; do
	mv -f "$work/$m" "$out/$m"
done
state >"$stamp.new"
mv -f "$stamp.new" "$stamp"
echo "kernel $release: built ${modules[*]} in $out"
