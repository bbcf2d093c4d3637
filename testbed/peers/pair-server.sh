# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The other side of pair.sh, on node b.
set -euo pipefail
. "$(dirname "$0")/common.sh"

bounded 180 ibv_rc_pingpong -d "$device" -g "$(gid_index)" -c -s 4096 -n 30
bounded 180 rping -s -a 10.9.1.2 -C 5 -V
