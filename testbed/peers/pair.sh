#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two machines on one cable: ibv_rc_pingpong and rping from node a to node b,
# where pair-server.sh runs. Short, since every round trip crosses two
# emulated network cards.
#
# testbed: machine=pair peer=pair-server.sh
set -euo pipefail
. "$(dirname "$0")/common.sh"

server=10.9.1.2

# The server of the other machine may start later: while no server listens, the
# client tries again. Any other message of the client is a failure.
client() {
	local out i
	for ((i = 0; i < 60; i++)); do
		if out=$(bounded 180 "$@" 2>&1); then
			echo "ok $*"
			return
		fi
		grep -qiE "couldn't connect|REJECTED|UNREACHABLE|connection refused" <<<"$out" || break
		sleep 0.5
	done
	echo "$out" >&2
	fail "$*"
}

client ibv_rc_pingpong -d "$device" -g "$(gid_index)" -c -s 4096 -n 30 $server
client rping -c -a $server -C 5 -V
pass "two machines on kernel $series"
