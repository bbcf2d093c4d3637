#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# All peers on the rdma_rxe of the running guest, one after the other. Goes on
# after a failure and fails at the end.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
failed=()
for script in kernel-selftest pingpong perftest pyverbs; do
	echo "=== $script"
	"$here/$script.sh" || failed+=("$script")
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "FAIL: peers: ${failed[*]}" >&2
	exit 1
fi
echo "PASS: all peers"
