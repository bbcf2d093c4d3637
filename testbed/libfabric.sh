#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a libfabric that is newer than Debian 12's, and the program fi-rma with it: version 2
# registers dma-bufs (FI_MR_DMABUF).
#
#   testbed/libfabric.sh
#
# The source is the upstream tarball from the Debian archive that the machine's own apt is set
# up for. An apt of our own looks for it in newer suites than the machine's (archive.sh). The
# build has the verbs provider and ofi_rxm, and no others. It installs nothing.
#
# Writes build/libfabric/{lib,include,bin}. Exits with 77 where the source cannot be had.
#
#   LD_LIBRARY_PATH=build/libfabric/lib build/libfabric/bin/fi-rma ADDRESS
set -euo pipefail

fail() {
	echo "testbed/libfabric.sh: $*" >&2
	exit 1
}

unavailable() {
	echo "testbed/libfabric.sh: $*" >&2
	exit 77
}

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
out=$build/libfabric
# Suites to look in, oldest first.
suites=(trixie forky sid)
# shellcheck source-path=SCRIPTDIR
. "$top/testbed/archive.sh"

for tool in apt-get autoreconf automake libtoolize cc make tar flock; do
	command -v "$tool" >/dev/null || fail "$tool is missing; install autoconf, automake, libtool, gcc, make, tar"
done

mkdir -p "$build"
exec 9>"$build/.lock-libfabric"
flock -w 600 9 || fail "another build holds $build/.lock-libfabric"

hash=$(cat "${BASH_SOURCE[0]}" "$top"/testbed/cprog/{fi-rma,errname,exporter}.c \
	"$top"/testbed/cprog/{errname,exporter}.h "$top/mk/kernel.mk" <(cc --version) | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/inputs" 2>/dev/null)" = "$hash" ]; then
	echo "libfabric: $out is up to date"
	exit 0
fi

rm -rf "$build"/.libfabric.* # of a build that was killed
work=$(mktemp -d "$build/.libfabric.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

run() {
	local what=$1
	shift
	echo "libfabric: $what"
	if ! "$@" >"$work/log" 2>&1; then
		tail -n 30 "$work/log" >&2
		return 1
	fi
}

archive=$(archive_uri)
[ -n "$archive" ] || unavailable "no Debian archive among the sources that apt is configured with"
archive_find "$build/.libfabric-apt" "$archive" '^2\.' libfabric "${suites[@]}" ||
	unavailable "the source of libfabric 2 cannot be downloaded: the suites of ${suites[*]} that can be read have:${source_offered:- no version at all}"
version=$source_version
run "fetch the source of libfabric $version" archive_tarball libfabric "$work/dl" ||
	unavailable "the source of libfabric $version is listed but cannot be downloaded"

prepare() {
	mkdir "$work/src" "$work/build" &&
		tar -xf "$work"/dl/libfabric_*.orig.tar.* -C "$work/src" --strip-components=1 &&
		cd "$work/src" && autoreconf -fi &&
		cd "$work/build" && ../src/configure --prefix="$out" --disable-static --disable-dependency-tracking \
		--enable-only --enable-verbs --enable-rxm --enable-xpmem=no
}
run "configure" prepare || fail "libfabric $version cannot be configured here"
run "build" make -C "$work/build" -j"$(nproc)" src/libfabric.la || fail "libfabric $version does not build here"

new=$work/new
collect() {
	mkdir -p "$new/lib" "$new/include" "$new/bin" &&
		cp -a "$work/build/src/.libs/"libfabric.so* "$new/lib/" &&
		cp -r "$work/src/include/rdma" "$new/include/" &&
		make -C "$top" --no-print-directory BUILD="$build" FI_RMA="$new/bin/fi-rma" \
			CPPFLAGS="-I$new/include" LDFLAGS="-L$new/lib" "$new/bin/fi-rma"
}
run "build fi-rma with it" collect || fail "fi-rma does not build with libfabric $version"

archive_record source -o "$new/.downloads.json" -for libfabric -lists "$source_apt/lists" \
	-name libfabric -version "$version" "$work"/dl/libfabric_*.orig.tar.*
echo "$version" >"$new/version"
echo "$hash" >"$new/inputs"
rm -rf "$out"
mv "$new" "$out"
echo "libfabric: built $out from libfabric $version"
