#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The promises of the test bed that each kernel could break, in one boot: the guest's
# kernel, streams, modules, results, and a fault in its log, which the test bed finds
# whatever the command's status.
#
#   testbed/selftest/series.sh SERIES
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"
export GPURDMA_KERNEL=${1:?usage: series.sh SERIES}
tally "$1" selftest

# The guest runs the right kernel, and only the command writes to its streams.
run 121 run -results "$dir/results" -- bash -c '
	uname -r
	cat /sys/class/net/dummy0/mtu
	echo "  to  stderr" >&2
	modprobe veth && ip link add left type veth peer name right && echo kept >"$GPURDMA_RESULTS/f"
	touch /write-is-dropped
	echo "WARNING: CPU: 0 PID: 1 at made/up.c:1 f+0x0/0x1" >/dev/kmsg
	exit 0'
[ "$(cat "$dir/out")" = "$(cat "build/kernels/$GPURDMA_KERNEL/release")"$'\n4200' ] || fail "wrong standard output"
[ "$(unreported)" = '  to  stderr' ] || fail "wrong standard error"
[ "$(cat "$dir/results/f")" = kept ] || fail "results were lost"
[ ! -e /write-is-dropped ] || fail "the guest wrote to the host's root"
ok "$GPURDMA_KERNEL: streams, files, modules"
said err 'made/up.c'
ok "$GPURDMA_KERNEL: kernel faults"
