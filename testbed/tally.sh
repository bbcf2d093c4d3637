#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the end of `make test`: the counts that the run of each kernel left under
# BUILD, which tests were skipped and why, which were left out, and last, where
# readers look first, the failures. A kernel whose run left no counts has failed,
# too. STATUS is that of all the runs: if it is not 0 and no test failed, a step
# beside the tests has.
#
# usage: BUILD=dir testbed/tally.sh STATUS SERIES...
set -euo pipefail
status=$1
shift

failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
counts=()
for series; do
	tally=$BUILD/testbed/$series/tally
	[ -e "$tally" ] || echo "FAIL $series: its run broke off before the tests ended" >>"$failed"
	for tally in "$tally" "$tally-softgpu" "$tally-selftest" "$tally-once"; do
		[ ! -e "$tally" ] || counts+=("$tally")
	done
done
for tally in "${counts[@]}"; do
	sed -n '/^FAIL /p' "$tally" >>"$failed"
done

echo
[ ! -s "$BUILD/steps" ] || echo "before the virtual machines, passed: $(paste -sd, "$BUILD/steps" | sed 's/,/, /g')"
[ ${#counts[@]} -eq 0 ] || awk '/^(FAIL|SKIP|LEFT) / { next } { print }
	{ for (i = 2; i <= NF; i++) n[$i] += $(i - 1) }
	END { print n["boots:"] + n["boots,"] + n["boots"] " boots, " n["passed,"] + 0 " passed, " n["failed,"] + 0 " failed, " n["skipped"] + 0 " skipped" }' "${counts[@]}"
# named WORD TITLE prints the lines of a kind.
named() {
	local lines
	[ ${#counts[@]} -eq 0 ] || lines=$(sed -n "s/^$1 /  /p" "${counts[@]}")
	[ -z "${lines:-}" ] || printf '\n%s\n%s\n' "$2" "$lines"
}
named SKIP "skipped:"
named LEFT "left out (make test-whole runs those of VM_LONG and VM_LEFT of mk/test.mk):"
echo
if [ "$status" -ne 0 ] && [ ! -s "$failed" ]; then
	echo "FAIL a step beside the tests: its message is above, after the kernel's name" >"$failed"
fi
cut -c -300 "$failed"
[ ! -s "$failed" ]
