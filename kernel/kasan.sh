#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds a kernel from Debian's source that checks itself: KASAN, lock
# debugging, kmemleak, checks of the DMA and dma-buf interfaces. The script puts
# it into a build directory of its own, at the path of Debian's kernel of that
# series, where the test bed and the module builds find it.
#
#   kernel/kasan.sh SERIES [configure]
#
# Reads  build/kernels/SERIES
# Writes build/kasan/kernels/SERIES in the layout of `testbed fetch`, and
#        build/kasan/source/SERIES, which the next build uses again.
set -euo pipefail

fail() {
	echo "kernel/kasan.sh: $*" >&2
	exit 1
}

series=${1:?usage: kernel/kasan.sh SERIES [configure], such as 6.12}
only=${2-}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
debian=$build/kernels/$series
out=$build/kasan
source=$out/source/$series
# The options of all series, and those of this series only.
fragments=("$top/kernel/kasan.config")
[ ! -e "$top/kernel/kasan-$series.config" ] || fragments+=("$top/kernel/kasan-$series.config")
CC=${KERNEL_CC:-gcc-12}
[ -s "$debian/version" ] || fail "$debian/version is missing; fetch kernel $series first"
for tool in "$CC" make flex bison bc pahole perl; do
	command -v "$tool" >/dev/null || fail "$tool is missing; run testbed/setup.sh"
done

mkdir -p "$out/kernels"
exec 9>"$out/.lock"
flock -w 10 9 || fail "another run holds $out/.lock"

inputs() {
	echo "layout 2" # as testbed/kernel
	cat "$debian/version" "${fragments[@]}"
	"$CC" --version | head -n 1
}
kernel=$out/kernels/$series
if [ "$only" != configure ] && [ "$(cat "$kernel/inputs" 2>/dev/null)" = "$(inputs)" ]; then
	echo "kernel $(cat "$kernel/release"): up to date in $kernel"
	exit 0
fi

if [ "$(cat "$source/.debian-version" 2>/dev/null)" != "$(cat "$debian/version")" ]; then
	echo "unpack Debian's source $(cat "$debian/version")"
	rm -rf "$source"
	mkdir -p "$source"
	tar -xJf "$debian/source.tar.xz" -C "$source" --strip-components=1
	cp "$debian/version" "$source/.debian-version"
fi

m() { make -s -C "$source" ARCH=x86_64 CC="$CC" "$@"; }

m x86_64_defconfig
(cd "$source" && KCONFIG_CONFIG=.config scripts/kconfig/merge_config.sh -m .config "${fragments[@]}" >/dev/null)
m olddefconfig
# The options of the fragments that the configuration does not have.
lost=$(grep -hE '^(CONFIG_|# CONFIG_.* is not set$)' "${fragments[@]}" |
	while read -r line; do
		case $line in
		'# '*) option=${line#'# '} option=${option%% *}
			! grep -q "^$option=" "$source/.config" || echo "$line" ;;
		*) grep -qxF "$line" "$source/.config" || echo "$line" ;;
		esac
	done)
[ -z "$lost" ] || fail "the configuration lacks:
$lost"
echo "configured as ${fragments[*]##*/} ask"
[ "$only" != configure ] || exit 0

echo "build it: 11 minutes and more on two idle processors"
m -j"$(nproc)" bzImage modules
release=$(cat "$source/include/config/kernel.release")

stage=$(mktemp -d "$out/kernels/.stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
image=$stage/image
mkdir -p "$image/boot" "$stage/headers"
cp "$source/arch/x86/boot/bzImage" "$image/boot/vmlinuz-$release"
cp "$source/.config" "$image/boot/config-$release"
m modules_install INSTALL_MOD_PATH="$image" INSTALL_MOD_STRIP=1
rm -f "$image/lib/modules/$release"/{build,source}
# Modules are built against the source tree, which has vmlinux for their BTF.
ln -s "$source" "$stage/headers/kdir"
ln "$debian/source.tar.xz" "$stage/source.tar.xz"
cp "$debian/version" "$stage/version"
echo "$release" >"$stage/release"
inputs >"$stage/inputs"
rm -rf "$kernel"
mv -T "$stage" "$kernel"
echo "kernel $release: in $kernel"
