#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: machine=switch kernels=7.2
#
# What `make demo` shows, on the machine that it shows it on: every byte verified
# from each exporter, the GPU's bytes found in its memory, and by the other NIC not.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need bar-search "(none: make cprog builds it)"
out=$(bounded 240 bash "$(dirname "$0")/../../cmd/dmabuf-reg/demo.sh" 2>&1) || fail "status $?: $out"
passed=$(grep -c '^PASS: \([0-9]*\) of \1: every byte' <<<"$out") || true
[ "$passed" -eq 2 ] || fail "two verifications should pass, $passed do: $out"
staged=$(grep -c "^NOT IN THE GPU'S MEMORY: .* with rxe1 " <<<"$out") || true
[ "$staged" -ge 1 ] || fail "the buffer that the driver moved is not spoken of: $out"
grep -q '^drm:.* rxe1 .*found nowhere in' <<<"$out" || fail "the bytes of the buffer that the driver moved were not looked for: $out"
found=$(grep -c 'found in BAR [0-9] of' <<<"$out") || true
[ "$found" -ge 1 ] || fail "no bytes were found in the GPU's memory: $out"
# Those of its own memory that the NIC below its switch wrote, and no others.
direct=$(grep -c '^drm:[^/ ]* .*rxe0 .*found in BAR [0-9] of' <<<"$out") || true
[ "$direct" -eq "$found" ] || fail "bytes were found in the GPU's memory that cannot be there: $out"
wide=$(grep -v '^\$ ' <<<"$out" | LC_ALL=C.UTF-8 grep -E '^.{101}') && fail "lines do not fit 100 columns: $wide"
# README.md shows a part of it. How many bytes are verified depends on the random ranges.
plain() { sed -E 's/[0-9.]+ MiB/N MiB/g' <<<"$1"; }
shown=$(sed -n '/^```text$/,/^```$/{/^```/!p}' "$(dirname "$0")/../../README.md" | grep -v '^…$')
[ "$(wc -l <<<"$shown")" -ge 10 ] || fail "README.md shows nothing of the demo: $shown"
while IFS= read -r line; do
	grep -qxF -- "$(plain "$line")" <<<"$(plain "$out")" || fail "README.md shows a line that the demo does not print: $line
$out"
done <<<"$shown"
grep -q '^[0-9]* checks: ' <<<"$out" || fail "p2pcheck does not come to its end: $out"
pass "the demo on kernel $series: $passed verifications, $staged buffer staged"
