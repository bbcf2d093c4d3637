# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The other side of gid-pair.sh, on node b.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/gid-pair-common.sh"

trap 'restored 2' EXIT
addresses 2
bounded 180 dmabuf-reg serve --gpu host --nic $device --size 256KiB --plaintext --listen "[::]:$port" 2>err &
pid=$!
trap 'kill $pid 2>/dev/null || true; restored 2' EXIT
# The server serves two clients; the first one, whose GID does not reach it, gets no service.
awaited '[ "$(grep -c "is done" err)" = 2 ]'
for way in "10.9.1.2 to 10.9.1.1" "fd00:1::2 to fd00:1::1"; do
	grep -q "has the buffer, over port 1 of $device, $way (TCP comes through it: RoCE v2)" err || fail "not over $way: $(cat err)"
done
