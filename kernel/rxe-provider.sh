#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds libibverbs with an rxe provider that has reg_dmabuf_mr, so that plain
# ibv_reg_dmabuf_mr() reaches the patched kernel, and with ibv_rereg_dmabuf_mr().
#
#   kernel/rxe-provider.sh [-source FILE] VERSION [pyverbs|check]
#
# VERSION is rdma-core's major version, 56 or 65. With pyverbs it also builds
# rdma-core's Python module, tests and man page of the new call. With check it
# builds all of rdma-core, and runs its own checks (buildlib/check-build) and
# Debian's of the symbols.
#
# The source is rdma-core's upstream tarball from the Debian archive that the
# machine's own apt is configured with. The script looks for it in newer suites
# than the machine's by a private apt configuration below build/. It installs
# nothing, and does not touch apt's own state. With -source it downloads nothing
# and uses FILE, such a tarball.
#
# Writes build/rxe-provider/VERSION/{lib,etc,include,bin}, with pyverbs
# build/pyverbs/VERSION/{lib,etc,python,tests,man}, with check only a stamp in
# build/pyverbs/VERSION-checked. Exits with 77 if it cannot get the source. The
# provider uses a private ABI of the libibverbs beside it: a program needs both.
#
#   LD_LIBRARY_PATH=build/rxe-provider/56/lib PROGRAM
set -euo pipefail

fail() {
	echo "kernel/rxe-provider.sh: $*" >&2
	exit 1
}

usage="usage: kernel/rxe-provider.sh [-source FILE] VERSION [pyverbs|check]; VERSION is 56 or 65"
source=
if [ "${1-}" = -source ]; then
	[ $# -ge 2 ] || fail "$usage"
	source=$2
	[ -r "$source" ] || fail "$source can not be read; -source is for a tarball of rdma-core's source"
	shift 2
fi
[ $# -eq 1 ] || [ $# -eq 2 ] || fail "$usage"
version=$1 part=${2:-provider}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
case $part in
provider) base=$build/rxe-provider out=$base/$version name="rxe provider" ;;
pyverbs) base=$build/pyverbs out=$base/$version name=pyverbs ;;
check) base=$build/pyverbs out=$base/$version-checked name="rdma-core's checks" ;;
*) fail "$usage" ;;
esac
apts=$base/apt
patches=()
for p in rxe-provider version pyverbs rereg; do
	patches+=("$top/kernel/patches/rdma-core/$p-$version.patch")
done
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

# Debian's Python, also if another is first on the PATH: the guest has Debian's.
python=/usr/bin/python3
man=
if [ "$part" != provider ]; then
	$python -c 'import Cython' 2>/dev/null || fail "Cython is missing; install cython3"
	[ -e "$($python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
		fail "Python's headers are missing; install python3-dev"
	pkg-config --exists libdrm || fail "the headers of libdrm are missing; install libdrm-dev: without them pyverbs makes no dma-buf"
	if ! command -v pandoc >/dev/null || ! command -v rst2man >/dev/null; then
		echo "$name $version: without the man pages: pandoc or rst2man is missing (packages pandoc and python3-docutils)"
	else
		man=yes
	fi
fi
if [ "$part" = check ]; then
	command -v ninja >/dev/null || fail "ninja is missing; install ninja-build"
	command -v dpkg-gensymbols >/dev/null || fail "dpkg-gensymbols is missing; install dpkg-dev"
	$python -c 'import pkg_resources' 2>/dev/null || fail "pkg_resources is missing; install python3-pkg-resources"
fi

mkdir -p "$base"
exec 9>"$base/.lock"
flock -w 600 9 || fail "another build holds $base/.lock"

hash=$(cat "${BASH_SOURCE[0]}" "${patches[@]}" "$top/testbed/cprog/"*.[ch] "$top/mk/kernel.mk" ${source:+"$source"} <(cc --version) |
	sha256sum | cut -d' ' -f1)$man
if [ "$(cat "$out/inputs" 2>/dev/null)" = "$hash" ]; then
	echo "$name $version: $out is up to date"
	exit 0
fi

rm -rf "$base"/.work.* # of a build that was killed
work=$(mktemp -d "$base/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

run() {
	local what=$1
	shift
	echo "$name $version: $what"
	if ! "$@" >"$work/log" 2>&1; then
		tail -n 30 "$work/log" >&2
		return 1
	fi
}

absent() {
	echo "kernel/rxe-provider.sh: $*" >&2
	exit 77
}

if [ -z "$source" ]; then
	archive=$(archive_uri)
	[ -n "$archive" ] || absent "no Debian archive among the sources that apt is configured with"
	archive_find "$apts" "$archive" "^$version\\." rdma-core "${suites[@]}" ||
		absent "the source of rdma-core $version cannot be downloaded: the suites of ${suites[*]} that can be read have:${source_offered:- no version at all}. Name a tarball of it with -source FILE, or make RDMA_CORE_SOURCE_$version=FILE"
	exact=$source_version
	run "fetch the source of rdma-core $exact" archive_tarball rdma-core "$work/dl" ||
		absent "the source of rdma-core $exact is listed but can not be downloaded"
	tarball=$(echo "$work"/dl/rdma-core_*.orig.tar.*)
else
	tarball=$source
	exact="$version of $(sha256sum "$source" | cut -d' ' -f1)"
fi

extract() {
	local p
	mkdir "$work/src" &&
		tar -xf "$tarball" -C "$work/src" --strip-components=1 || return 1
	grep -q "^set(PACKAGE_VERSION \"$version\." "$work/src/CMakeLists.txt" || {
		echo "$tarball is not the source of rdma-core $version"
		return 1
	}
	for p in "${patches[@]}"; do
		patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" || return 1
	done
}
run "unpack and patch" extract || fail "the source of rdma-core $exact can not be patched"

# The libraries contain the paths of the provider and of its configuration.
configure() {
	cmake -S "$work/src" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_INSTALL_PREFIX="$out" -DCMAKE_INSTALL_LIBDIR=lib \
		-DCMAKE_INSTALL_SYSCONFDIR=etc -DCMAKE_SKIP_RPATH=1 \
		-DENABLE_RESOLVE_NEIGH=1 "$@" || return 1
	[ "$part" = provider ] || ! grep 'disabling pyverbs\|DMABUF NOT supported' "$work/log"
}
options=()
if [ "$part" = provider ]; then
	options+=(-DNO_PYVERBS=1)
else
	options+=("-DPYTHON_EXECUTABLE=$python")
	# cmake finds Python's headers by the commands on the PATH.
	export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
fi
[ -n "$man" ] || options+=(-DNO_MAN_PAGES=1)
# Cython's C code takes most of the time; Debug does not optimize it.
[ "$part" != pyverbs ] || options+=(-DCMAKE_BUILD_TYPE=Debug)
# The build type of rdma-core itself: with -O3 GCC 12 warns about cxgb4 without reason, and a warning is an error here.
# check-build links programs with the libraries, which find each other by the paths in them.
[ "$part" != check ] || options+=(-GNinja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_SKIP_RPATH=0 -DIOCTL_MODE=both -DENABLE_STATIC=1 -DENABLE_WERROR=1)
run "configure" configure "${options[@]}" || fail "rdma-core $exact can not be configured here"

if [ "$part" = check ]; then
	# shellcheck source-path=SCRIPTDIR
	. "$top/kernel/rdma-core-check.sh"
	mkdir "$out.new"
	echo "$hash" >"$out.new/inputs"
	rm -rf "$out"
	mv "$out.new" "$out"
	exit 0
fi

wanted='ibverbs\|rxe\|rxe-rdmav[0-9]*'
[ "$part" != pyverbs ] || wanted+='\|.*\.cpython-.*\|man-ibv_rereg_dmabuf_mr\.3'
targets=$(make -C "$work/build" help | sed -n "s/^\.\.\. \($wanted\)$/\1/p")
# shellcheck disable=SC2086 # a list
run "build $(xargs <<<"$targets")" make -C "$work/build" -j"$(nproc)" $targets ||
	fail "rdma-core $exact does not build here"

new=$work/new
# Collects libibverbs and the provider, which every part has.
collect() {
	mkdir -p "$new/lib/libibverbs" "$new/etc/libibverbs.d" &&
		cp -a "$work/build/lib/"lib*.so* "$new/lib/" &&
		mv "$new/lib/"librxe-rdmav*.so "$new/lib/libibverbs/" &&
		echo "driver rxe" >"$new/etc/libibverbs.d/rxe.driver"
}
cprog() {
	mkdir -p "$new/include" "$new/bin" &&
		cp -rL "$work/build/include/infiniband" "$work/build/include/rdma" "$new/include/" &&
		make -C "$top" --no-print-directory CPROG="$new/bin/dmabuf-mr" \
			CPPFLAGS="-I$new/include" LDFLAGS="-L$new/lib" BUILD="$build" cprog
}
pyverbs() {
	cp -rL "$work/build/python" "$new/python" && cp -r "$work/src/tests" "$new/tests" || return 1
	[ -z "$man" ] || { mkdir -p "$new/man/man3" && cp "$work/build/libibverbs/man/ibv_rereg_dmabuf_mr.3" "$new/man/man3/"; }
}
run "collect the libraries" collect || fail "rdma-core $exact has built other files than expected"
if [ "$part" = pyverbs ]; then
	run "collect pyverbs" pyverbs || fail "rdma-core $exact has built other files than expected"
else
	run "build the C program against it" cprog || fail "the C program does not build against rdma-core $exact"
fi

[ -n "$source" ] || archive_record source -o "$new/.downloads.json" -for "$name $version" -lists "$source_apt/lists" \
	-name rdma-core -version "$exact" "$tarball"
echo "$exact" >"$new/version"
echo "$hash" >"$new/inputs"
rm -rf "$out"
mv "$new" "$out"
echo "$name $version: built $out from rdma-core $exact"
