#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds libibverbs with an rxe provider that has reg_dmabuf_mr, so that plain
# ibv_reg_dmabuf_mr() reaches the patched kernel, and with ibv_rereg_dmabuf_mr().
#
#   kernel/rxe-provider.sh VERSION      (56 or 65: rdma-core's major version)
#
# The source is rdma-core's upstream tarball from the Debian archive that the
# machine's own apt is set up for, looked for in newer suites than the
# machine's through a private apt configuration below build/. Nothing is
# installed, and apt's own state is not touched.
#
# Writes build/rxe-provider/VERSION/{lib,etc,include,bin}. Exits with 77 where the
# source cannot be had. The provider's
# private ABI ties it to the libibverbs beside it, so both have to be used:
#
#   LD_LIBRARY_PATH=build/rxe-provider/56/lib PROGRAM
set -euo pipefail

fail() {
	echo "kernel/rxe-provider.sh: $*" >&2
	exit 1
}

[ $# -eq 1 ] || fail "usage: kernel/rxe-provider.sh VERSION, such as 56"
version=$1
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
out=$build/rxe-provider/$version
apts=$build/rxe-provider/apt
patches=("$top/kernel/patches/rdma-core/rxe-provider-$version.patch" "$top/kernel/patches/rdma-core/rereg-$version.patch")
# Suites to look in, oldest first.
suites=(trixie forky sid)
# shellcheck source-path=SCRIPTDIR/..
. "$top/testbed/archive.sh"

[ -e "${patches[0]}" ] || fail "there is no patch for rdma-core $version"
for tool in apt-get cmake cc make patch tar pkg-config flock; do
	command -v "$tool" >/dev/null || fail "$tool is missing; install cmake, gcc, make, patch, tar, pkg-config"
done
pkg-config --exists libnl-3.0 libnl-route-3.0 ||
	fail "the headers of libnl are missing; install libnl-3-dev and libnl-route-3-dev"

mkdir -p "$build/rxe-provider"
exec 9>"$build/rxe-provider/.lock"
flock -w 600 9 || fail "another build holds $build/rxe-provider/.lock"

hash=$(cat "${BASH_SOURCE[0]}" "${patches[@]}" "$top/testbed/cprog/"*.[ch] "$top/mk/kernel.mk" <(cc --version) |
	sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/inputs" 2>/dev/null)" = "$hash" ]; then
	echo "rxe provider $version: $out is up to date"
	exit 0
fi

rm -rf "$build"/rxe-provider/.work.* # of a build that was killed
work=$(mktemp -d "$build/rxe-provider/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

run() {
	local what=$1
	shift
	echo "rxe provider $version: $what"
	if ! "$@" >"$work/log" 2>&1; then
		tail -n 30 "$work/log" >&2
		return 1
	fi
}

absent() {
	echo "kernel/rxe-provider.sh: $*" >&2
	exit 77
}

archive=$(archive_uri)
[ -n "$archive" ] || absent "no Debian archive among the sources that apt is configured with"

archive_find "$apts" "$archive" "^$version\\." rdma-core "${suites[@]}" ||
	absent "the source of rdma-core $version can not be had: of ${suites[*]}, those that can be read have:${source_offered:- no version at all}"
exact=$source_version
run "fetch the source of rdma-core $exact" archive_tarball rdma-core "$work/dl" ||
	absent "the source of rdma-core $exact is listed but can not be downloaded"

extract() {
	local p
	mkdir "$work/src" &&
		tar -xf "$work"/dl/rdma-core_*.orig.tar.* -C "$work/src" --strip-components=1 &&
		for p in "${patches[@]}"; do
			patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" || return 1
		done
}
run "unpack and patch" extract || fail "the patch does not apply to rdma-core $exact"

# The paths of the provider and of its configuration are built in.
configure() {
	cmake -S "$work/src" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_INSTALL_PREFIX="$out" -DCMAKE_INSTALL_LIBDIR=lib \
		-DCMAKE_INSTALL_SYSCONFDIR=etc -DCMAKE_SKIP_RPATH=1 \
		-DENABLE_RESOLVE_NEIGH=1 -DNO_MAN_PAGES=1 -DNO_PYVERBS=1
}
run "configure" configure || fail "rdma-core $exact can not be configured here"
targets=$(make -C "$work/build" help | sed -n 's/^\.\.\. \(ibverbs\|rxe\|rxe-rdmav[0-9]*\)$/\1/p')
# shellcheck disable=SC2086 # a list
run "build $(xargs <<<"$targets")" make -C "$work/build" -j"$(nproc)" $targets ||
	fail "rdma-core $exact does not build here"

new=$work/new
collect() {
	mkdir -p "$new/lib/libibverbs" "$new/etc/libibverbs.d" "$new/include" "$new/bin" &&
		cp -a "$work/build/lib/"libibverbs.so* "$new/lib/" &&
		cp -aL "$work/build/lib/"librxe-rdmav*.so "$new/lib/libibverbs/" &&
		echo "driver rxe" >"$new/etc/libibverbs.d/rxe.driver" &&
		cp -rL "$work/build/include/infiniband" "$work/build/include/rdma" "$new/include/" &&
		make -C "$top" --no-print-directory CPROG="$new/bin/dmabuf-mr" \
			CPPFLAGS="-I$new/include" LDFLAGS="-L$new/lib" BUILD="$build" cprog
}
run "build the C program against it" collect || fail "the C program does not build against rdma-core $exact"

archive_record source -o "$new/.downloads.json" -for "rxe-provider $version" -lists "$source_apt/lists" \
	-name rdma-core -version "$exact" "$work"/dl/rdma-core_*.orig.tar.*
echo "$exact" >"$new/version"
echo "$hash" >"$new/inputs"
rm -rf "$out"
mv "$new" "$out"
echo "rxe provider $version: built $out from rdma-core $exact"
