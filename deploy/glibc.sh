#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# glibc.sh PROGRAM DIRECTORY: copies the files of glibc that a dynamically linked
# program, and a vendor's library that it loads, need into the root of an image. The
# files keep the places where the dynamic linker looks by itself.
set -eu
program=$1 root=$2

linker=$(readelf -l "$program" | sed -n 's/.*program interpreter: \(.*\)\].*/\1/p')
[ -n "$linker" ] || { echo "glibc.sh: $program names no dynamic linker" >&2; exit 1; }
mkdir -p "$root${linker%/*}"
cp -L "$linker" "$root$linker"

libc=$(${CC:-cc} -print-file-name=libc.so.6)
from=$(dirname "$(readlink -f "$libc")")
into=/lib/$(basename "$from")
mkdir -p "$root$into"
# NVML is linked with these names; newer glibc has some of them for such libraries only.
for lib in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do
	cp -L "$from/$lib" "$root$into/$lib"
done
# The licence of glibc has to go with the copies.
if [ -r /usr/share/doc/libc6/copyright ]; then
	mkdir -p "$root/usr/share/doc/glibc"
	cp /usr/share/doc/libc6/copyright "$root/usr/share/doc/glibc/"
fi
# A missing library fails the build of the image, and not the program on a node.
for need in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
	[ -e "$root$into/$need" ] || { echo "glibc.sh: $program needs $need, which is not copied" >&2; exit 1; }
done
