#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# ibv_rc_pingpong and rping with themselves over rxe. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need ibv_rc_pingpong ibverbs-utils
need rping rdmacm-utils

gid=$(gid_index)

# -c compares what arrives with what was sent.
port=18515
pair "ibv_rc_pingpong" 60 \
	"ibv_rc_pingpong -d $device -g $gid -c -s 16384 -n 200" \
	"ibv_rc_pingpong -d $device -g $gid -c -s 16384 -n 200 127.0.0.1"
grep -q '200 iters' <<<"$result" || fail "ibv_rc_pingpong: no 200 iterations: $result"

port=
pair "rping" 60 \
	"rping -s -a $address -C 100 -V" \
	"rping -c -a $address -C 100 -V"

pass "ping-pong on kernel $series"
