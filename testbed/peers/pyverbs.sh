#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# testbed: processors=1
#
# rdma-core's own test suite (pyverbs), compared test by test with a baseline
# measured on the distribution's rdma_rxe: none may be worse. Runs in the
# guest.
#
#   testbed/peers/pyverbs.sh              compare with the committed baseline
#   testbed/peers/pyverbs.sh --measure    print a baseline, one test a line
#
# A baseline says pass, skip or fail of each test. To renew one:
#   build/bin/testbed run -kernel 6.12 -stock-rxe -- \
#     testbed/peers/pyverbs.sh --measure > testbed/peers/pyverbs-baseline-6.12.txt
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

suite=/usr/share/doc/rdma-core/tests
baseline=$here/pyverbs-baseline-$series.txt

[ -e "$suite" ] || fail "$suite is missing; install the package rdma-core"
need python3 python3-pyverbs
python3 -c 'import pyverbs' 2>/dev/null || fail "pyverbs is missing; install the package python3-pyverbs"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Debian compresses the larger files.
cp -rL "$suite" "$dir/tests"
find "$dir" -name '*.gz' -exec gunzip {} +

gid=$(gid_index)
status=0
(cd "$dir" && bounded 840 python3 tests/run_tests.py --dev "$device" --gid "$gid" -v) \
	>"$dir/log" 2>&1 || status=$?
[ $status -ne 124 ] && [ $status -ne 137 ] || { tail -n 40 "$dir/log" >&2; fail "pyverbs did not end"; }

# "test_name (tests.module.Class.test_name) ... ok": the verdict may come lines
# later, when the test has a docstring or prints something.
awk '
	/^test_[A-Za-z0-9_]* \([A-Za-z0-9_.]*\)/ { name = $2; gsub(/[()]/, "", name) }
	name && /(^|\.\.\. |[^A-Za-z])(ok|FAIL|ERROR|skipped .*)$/ {
		verdict = /skipped / ? "skip" : /ok$/ ? "pass" : "fail"
		print name, verdict
		name = ""
	}' "$dir/log" | LC_ALL=C sort >"$dir/now"
ran=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$dir/log")
[ -n "$ran" ] || { tail -n 40 "$dir/log" >&2; fail "pyverbs did not run"; }
# A crash of the interpreter, or a line that this script cannot read, must not look
# like a run of fewer tests.
[ "$ran" = "$(wc -l <"$dir/now")" ] ||
	fail "pyverbs ran $ran tests, of $(wc -l <"$dir/now") the verdict could be read"

# The reports of the failed tests.
failures() {
	grep -A 30 -E '^(ERROR|FAIL): ' "$dir/log" | head -n 200 >&2 || true
}

if [ "${1-}" = --measure ]; then
	echo "# rdma-core $(dpkg-query -W -f '${Version}' rdma-core), kernel $(uname -r), $(wc -l <"$dir/now") tests"
	cat "$dir/now"
	failures
	exit 0
fi

[ -e "$baseline" ] || fail "$baseline is missing"
# Better to worse: pass, skip, fail. Missing counts as failed.
worse=$(awk '
	BEGIN { rank["pass"] = 2; rank["skip"] = 1; rank["fail"] = 0 }
	/^#/ { next }
	FNR == NR { now[$1] = $2; next }
	!($1 in now) { print $1 ": " $2 " on stock rxe, did not run"; next }
	rank[now[$1]] < rank[$2] { print $1 ": " $2 " on stock rxe, " now[$1] " here" }
	' "$dir/now" "$baseline")
if [ -n "$worse" ]; then
	while read -r line; do
		echo "worse: $line" >&2
	done <<<"$worse"
	failures
	fail "pyverbs: $(wc -l <<<"$worse") tests are worse than on stock rxe"
fi
pass "pyverbs on kernel $series: $(awk '{ n[$2]++ } END { printf "%d pass, %d skip, %d fail", n["pass"], n["skip"], n["fail"] }' "$dir/now"), none worse than on stock rxe"
