#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds iommufd.ko of a kernel series whose configuration leaves it out, unchanged, from
# Debian's source of that kernel: an importer of dma-bufs for the tests.
#
#   kernel/iommufd.sh SERIES
#
# Reads  build/kernels/SERIES and build/roots/SERIES (kernel/buildroot.sh).
# Writes build/modules/SERIES/iommufd.ko, and a stamp with the hash of its
#        inputs. The script does nothing while that hash still matches.
#
# For series before 7.3 it does nothing: iommufd imports dma-bufs since 7.0, but the tests of
# that are for 7.3. It does nothing either if Debian's kernel has the module.
set -euo pipefail

fail() {
	echo "kernel/iommufd.sh: $*" >&2
	exit 1
}

series=${1:?usage: kernel/iommufd.sh SERIES, such as 7.3}
case $series in
6.* | 7.[0-2]) exit 0 ;;
esac
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
out=$build/modules/$series
for f in release version inputs; do
	[ -s "$kernel/$f" ] || fail "$kernel/$f is missing; fetch kernel $series first"
done
release=$(cat "$kernel/release")
if find "$kernel/image" -name 'iommufd.ko*' | grep -q .; then
	exit 0
fi

mkdir -p "$out"
exec 9>"$out/.lock-iommufd"
flock -w 600 9 || fail "another build has held $out/.lock-iommufd for 10 minutes"
stamp=$out/iommufd.inputs
hash=$(cat "$kernel/inputs" "$kernel/release" "$kernel/version" "${BASH_SOURCE[0]}" | sha256sum | cut -d' ' -f1)
state() { echo "$hash $(sha256sum <"$out/iommufd.ko" | cut -d' ' -f1)"; }
if [ -f "$out/iommufd.ko" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(state)" ]; then
	echo "kernel $release: $out/iommufd.ko is up to date"
	exit 0
fi

rm -rf "$out"/.iommufd.* # of a build that was killed
work=$(mktemp -d "$out/.iommufd.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "kernel $release: build iommufd.ko from Debian's source $(cat "$kernel/version")"
tar -xf "$kernel/source.tar.xz" -C "$work" --strip-components=1 --wildcards \
	'linux-source-*/drivers/iommu/iommufd/*' 'linux-source-*/drivers/iommu/*.h' 'linux-source-*/lib/interval_tree.c'
src=$work/drivers/iommu/iommufd
# Debian's kernel lacks this part of lib/, as no other code in it needs it.
mv "$work/lib/interval_tree.c" "$src/"
cat >>"$src/Makefile" <<'END'
iommufd-y += interval_tree.o
CFLAGS_interval_tree.o := -DCONFIG_INTERVAL_TREE_SPAN_ITER -D__DISABLE_EXPORTS
END
if ! "$top/kernel/buildroot.sh" "$series" make -C "/usr/src/linux-headers-$release" M="$src" CONFIG_IOMMUFD=m \
	KCFLAGS="-DCONFIG_IOMMUFD_MODULE=1 -fmacro-prefix-map=$work/=" -j"$(nproc)" modules >"$work/log" 2>&1; then
	tail -n 40 "$work/log" >&2
	fail "building iommufd failed for kernel $release"
fi
"${STRIP:-strip}" --strip-debug "$src/iommufd.ko"
rm -f "$stamp"
mv -f "$src/iommufd.ko" "$out/iommufd.ko"
state >"$stamp.new"
mv -f "$stamp.new" "$stamp"
echo "kernel $release: built $out/iommufd.ko"
