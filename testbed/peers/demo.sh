#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: machine=switch kernels=7.2
#
# Runs the demo on the machine of `make demo`, and checks its output: every byte is verified
# from each exporter, the NIC below the GPU's switch reaches the GPU's memory, the other not.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need bar-search "(none: make cprog builds it)"
out=$(bounded 240 bash "$(dirname "$0")/../../cmd/dmabuf-reg/demo.sh" 2>&1) || fail "status $?: $out"
passed=$(grep -c '^PASS: \([0-9]*\) of \1: every byte' <<<"$out") || true
[ "$passed" -eq 2 ] || fail "two verifications should pass, $passed do: $out"
staged=$(grep -c "^NOT IN THE GPU'S MEMORY: .* with rxe1 " <<<"$out") || true
[ "$staged" -ge 1 ] || fail "the demo does not report the buffer that the driver moved: $out"
grep -q '^drm:.* rxe1 .*found nowhere in' <<<"$out" || fail "the demo does not look for the bytes of the buffer that the driver moved: $out"
found=$(grep -c 'found in BAR [0-9] of' <<<"$out") || true
[ "$found" -ge 1 ] || fail "no bytes were found in the GPU's memory: $out"
# Only the bytes that the NIC below the GPU's switch wrote are in the GPU's memory.
direct=$(grep -c '^drm:[^/ ]* .*rxe0 .*found in BAR [0-9] of' <<<"$out") || true
[ "$direct" -eq "$found" ] || fail "bytes of another NIC or exporter were found in the GPU's memory: $out"
wide=$(grep -v '^\$ ' <<<"$out" | LC_ALL=C.UTF-8 grep -E '^.{101}') && fail "lines do not fit 100 columns: $wide"
# README.md shows a part of the output. How many bytes are verified depends on the random ranges.
plain() { sed -E 's/[0-9.]+ MiB/N MiB/g' <<<"$1"; }
shown=$(sed -n '/^```text$/,/^```$/{/^```/!p}' "$(dirname "$0")/../../README.md" | grep -v '^…$')
[ "$(wc -l <<<"$shown")" -ge 10 ] || fail "README.md shows nothing of the demo: $shown"
while IFS= read -r line; do
	grep -qxF -- "$(plain "$line")" <<<"$(plain "$out")" || fail "README.md shows a line that the demo does not print: $line
$out"
done <<<"$shown"
grep -q '^[0-9]* checks: ' <<<"$out" || fail "p2pcheck does not print its last lines: $out"
pass "the demo on kernel $series: $passed verifications, $staged buffer staged"
