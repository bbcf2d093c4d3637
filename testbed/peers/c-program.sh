#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The independent C program moves and compares bytes on every exporter, for
# buffers and ranges of many shapes, by the ioctl route. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/shapes.sh"

need dmabuf-mr "(none: make cprog builds it)"
while read -r shape; do
	# shellcheck disable=SC2086 # options
	out=$(bounded 180 dmabuf-mr verify --route ioctl $shape) || fail "$shape: $out"
	[[ $out == *'"ok":true'*'"route":"ioctl"'* ]] || fail "$shape: $out"
	echo "ok $shape"
done < <(shapes)
pass "C program by the ioctl on kernel $series"
