# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Runs the checks of rdma-core's own CI on a build, and Debian's check of the
# symbols. kernel/rxe-provider.sh sources this when it has configured the build.
: "${work:?}" "${exact:?}" "${name:?}" "${version:?}" "${python:?}"

run "build all of rdma-core" ninja -C "$work/build" || fail "rdma-core $exact does not build here"

# check-build looks for ABI/ in the source, which only the branches of stable
# releases have, and reports that it is not there.
run "buildlib/check-build" "$python" "$work/src/buildlib/check-build" --src "$work/src" --build "$work/build" --cc cc --cxx c++ ||
	fail "buildlib/check-build reports a fault of rdma-core $exact"
grep '^ABI check skipped' "$work/log" || true

# symbols PACKAGE LIBRARY compares debian/PACKAGE.symbols with the exports.
symbols() {
	local package=$1 library=$2
	local tree=$work/symbols/$package
	mkdir -p "$tree/usr/lib" && cp -a "$work/build/lib/$library".* "$tree/usr/lib/" || return 1
	# -c4: neither a symbol that is gone, nor one that is new
	(cd "$work/src" && dpkg-gensymbols -c4 -p"$package" -v"$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" \
		-I"debian/$package.symbols" -P"$tree" -O/dev/null)
}
for package in libibverbs1:libibverbs.so librdmacm1:librdmacm.so libibumad3:libibumad.so; do
	run "symbols of ${package%:*}" symbols "${package%:*}" "${package#*:}" ||
		fail "debian/${package%:*}.symbols is not what the library exports"
done
echo "$name $version: passed"
