#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the kernel's own checkpatch.pl --strict over the patch series and the
# test drivers. Any report is a failure.
#
#   kernel/checkpatch.sh SERIES     with the checkpatch.pl of this series
set -euo pipefail

fail() {
	echo "kernel/checkpatch.sh: $*" >&2
	exit 1
}

series=${1:?usage: kernel/checkpatch.sh SERIES, such as 6.12}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
[ -s "$kernel/version" ] || fail "$kernel/version is missing; fetch kernel $series first"
command -v perl >/dev/null || fail "perl is missing; install the package perl"

# The script and its word lists, unpacked once for each version of the source.
tools=$build/checkpatch/$(cat "$kernel/version")
if [ ! -d "$tools" ]; then
	mkdir -p "$build/checkpatch"
	stage=$(mktemp -d "$build/checkpatch/.stage.XXXXXX")
	trap 'rm -rf "$stage"' EXIT
	tar -xJf "$kernel/source.tar.xz" -C "$stage" --strip-components=2 --occurrence=1 --wildcards \
		'linux-source-*/scripts/checkpatch.pl' 'linux-source-*/scripts/spelling.txt' \
		'linux-source-*/scripts/const_structs.checkpatch'
	mv -T "$stage" "$tools" 2>/dev/null || [ -d "$tools" ] # another run was quicker
fi

# In a directory with a .git, checkpatch.pl takes a patch that is in it for a
# source file.
check() {
	(cd "$tools" && perl checkpatch.pl --no-tree --strict --quiet --no-summary \
		--show-types "$@" | sed "s#$top/##") || status=1
}

status=0
# A series for tests does not add its files to the kernel's MAINTAINERS, and the
# commits that Fixes tags name are not here.
check --ignore FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID "$top"/kernel/patches/{rxe-dmabuf,rdma-rereg}/*/*.patch
check -f "$top"/kernel/{testexporter,softgpu,testimporter,testnic}/*.[ch]
[ $status -eq 0 ] || fail "checkpatch reports the lines above"
echo "checkpatch of $(cat "$kernel/version"): no reports"
