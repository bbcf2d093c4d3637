#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Compiles the test program against the uapi headers of one kernel series.
#
#   kernel/softgpu/tests/build.sh SERIES
#
# Writes build/modules/SERIES/softgpu-test.
set -euo pipefail

series=${1:?usage: build.sh SERIES}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../../.." && pwd)
build=${BUILD:-$top/build}
kdir=$(realpath "$build/kernels/$series/headers/kdir")
# Debian has the uapi headers in a -common package; a built tree has its own.
common=$(echo "${kdir%-amd64}"-common)
[ -d "$common/include/uapi" ] || common=$kdir
mkdir -p "$build/modules/$series"
# The kernel's uapi headers come last, so that they do not replace libc's.
"${CC:-gcc}" -O2 -g -std=gnu11 -Wall -Wextra -Werror -Wno-format-zero-length -D__user= '-D__packed=__attribute__((packed))' \
	-I"$top/kernel/testimporter" -I"$top/testbed/cprog" \
	-idirafter "$common/include/uapi" \
	-o "$build/modules/$series/softgpu-test" "$here"/*.c \
	"$top"/testbed/cprog/{loopback,mr}.c -libverbs -pthread
