#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two machines on one cable, each with a NIC whose first GID is in a network that the
# other is not on: connections go over the addresses that TCP has, IPv4 and IPv6,
# and every byte is verified. If the user names a GID that does not reach the peer,
# the error names that GID.
#
# testbed: machine=pair peer=gid-pair-server.sh kernels=6.12
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/gid-pair-common.sh"

trap 'restored 1' EXIT
addresses 1

# connect ADDRESS FLAGS... tries again while the server is not there yet.
connect() {
	local i address=$1
	shift
	for ((i = 0; i < 300 * slow; i++)); do
		status=0
		out=$(bounded 120 dmabuf-reg connect "$address:$port" --gpu host --nic $device --size 256KiB --plaintext --count 2 --sizes 65537 "$@" 2>&1) || status=$?
		[ $status -ne 0 ] && grep -qE 'ECONNREFUSED|EHOSTUNREACH|ENETUNREACH' <<<"$out" && ! grep -q 'this side offered' <<<"$out" || return 0
		sleep 0.1
	done
}

connect 10.9.1.2 --gid 10.9.2.0/24
[ $status -eq 1 ] && grep -q "this side offered port 1 of $device, 10.9.2.1 " <<<"$out" ||
	fail "from a GID that does not reach the peer: status $status, $out"
echo "ok a GID that does not reach the peer: $(grep -m1 'this side offered' <<<"$out")"

for way in "10.9.1.1 10.9.1.2" "fd00:1::1 [fd00:1::2]"; do
	read -r here there <<<"$way"
	connect "$there" --both
	[ $status -eq 0 ] && grep -q '^PASS' <<<"$out" || fail "over $here: status $status, $out"
	peer=${there//[\[\]]/}
	grep -qF "over:    port 1 of $device, $here to $peer (TCP comes through it: RoCE v2)" <<<"$out" || fail "not over $here: $out"
	echo "ok over $here"
done
pass "two machines whose first GIDs do not reach each other, on kernel $series"
