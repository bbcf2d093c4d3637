#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The end of `make test`: the counts that the run of each kernel left under
# BUILD, and last, where nobody can miss it, what failed. A kernel whose run left
# none has failed too.
#
# usage: BUILD=dir testbed/tally.sh SERIES...
set -euo pipefail

failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
counts=()
for series; do
	tally=$BUILD/testbed/$series/tally
	if [ -e "$tally" ]; then
		counts+=("$tally")
		sed -n '/^FAIL /p' "$tally" >>"$failed"
	else
		echo "FAIL $series: its run broke off before the tests ended" >>"$failed"
	fi
done

echo
[ ${#counts[@]} -eq 0 ] || awk '/^FAIL / { next } { print }
	{ for (i = 2; i <= NF; i++) n[$i] += $(i - 1) }
	END { print n["passed,"] + 0 " passed, " n["failed,"] + 0 " failed, " n["skipped"] + 0 " skipped" }' "${counts[@]}"
cut -c -300 "$failed"
[ ! -s "$failed" ]
