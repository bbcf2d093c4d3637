#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The kernel's side of dma-buf memory regions, tested by the independent C
# program on every exporter of the running kernel. Runs in the guest.
#
# With GPURDMA_STOCK_RXE the rdma_rxe is the distribution's, and the test only
# checks how it refuses.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/shapes.sh"

stock=()
[ -z "${GPURDMA_STOCK_RXE-}" ] || stock=(--stock)

# The tests of features that this kernel lacks, and no others, must be absent from a
# run. FLUSH does not count: only a libibverbs newer than Debian 12's can post it.
case $series in
6.1)
	absent="atomic-writes rereg-access rereg-pd rereg-in-place window window-outside"
	;;
6.12 | 7.2)
	absent="rereg-in-place"
	;;
7.*) # from 7.3 on rereg_mr refuses dma-bufs, which these tests need
	absent="rereg-access rereg-pd rereg-in-place window window-outside"
	;;
*)
	fail "this script does not know which features kernel $series lacks"
	;;
esac
read -ra exporters < <(exporters)
[ ${#stock[@]} -eq 0 ] || absent=""
[ -z "${GPURDMA_REREG-}" ] || absent=$(sed 's/ *rereg-in-place//' <<<"$absent")

# mrs prints the number of live MRs of all RDMA devices.
mrs() {
	rdma resource show | awk '{ for (i = 1; i < NF; i++) if ($i == "mr") n += $(i + 1) }
		END { print n + 0 }'
}

before=$(mrs)
for exporter in "${exporters[@]}"; do
	echo "== $exporter"
	out=$(bounded 300 dmabuf-mr selftest --exporter "$exporter" "${stock[@]}") || {
		echo "$out"
		fail "$exporter: $(grep -c ^FAIL <<<"$out") tests failed"
	}
	echo "$out"
	grep -q '^ok ' <<<"$out" || fail "$exporter: no test ran"
	seen=$(sed -n 's/^absent \([^:]*\):.*/\1/p' <<<"$out" | grep -vx flushes | paste -sd' ') || true
	[ "$seen" = "$absent" ] ||
		fail "$exporter: absent are '$seen', and only '$absent' may be"
done
after=$(mrs)
[ "$before" = "$after" ] || fail "$before MRs before, $after after"
pass "kernel self-test on kernel $series: ${exporters[*]}"
