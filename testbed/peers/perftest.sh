#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: processors=1
#
# Short perftest runs of every kind of traffic. Their figures mean nothing here:
# this checks that they end and count all their messages. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need ib_write_bw perftest

gid=$(gid_index)
port=18515
n=500

for tool in ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw \
	ib_write_lat ib_read_lat ib_send_lat ib_atomic_lat; do
	args="-d $device -x $gid -F -n $n"
	case $tool in
	ib_atomic_*) ;;
	*) args+=" -s 4096" ;;
	esac
	pair "$tool" 60 "$tool $args" "$tool $args 127.0.0.1"
	# The columns begin with size and iterations.
	awk -v n=$n '$1 ~ /^[0-9]+$/ && $2 == n { found = 1 } END { exit !found }' <<<"$result" ||
		fail "$tool: no line with $n iterations: $result"
done

# The same with connections of rdma_cm, whose listener has no TCP socket. After a
# first connection the server listens and the client connects at once for the
# second. The kernel rejects a client that is early with reason 8, no listener, and
# the client's own retry fails. The script tries again after that error only.
port=
args="-R -d $device -F -n $n -s 4096"
for try in 1 2 3; do
	if out=$(pair "ib_write_bw -R" 60 "ib_write_bw $args" "ib_write_bw $args $address" 2>&1); then
		echo "$out"
		break
	fi
	[ $try -lt 3 ] && grep -q 'RDMA_CM_EVENT_REJECTED; error: 8\.' <<<"$out" || fail "$out"
	echo "ib_write_bw -R: connected before its server listened, again"
done

pass "perftest on kernel $series"
