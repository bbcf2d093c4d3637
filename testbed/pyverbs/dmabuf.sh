#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rdma-core's own tests of memory regions on dma-bufs, those of ibv_rereg_dmabuf_mr() among
# them, with the software GPU as amdgpu, which pyverbs knows how to allocate from. Runs in
# the guest, on a machine with gpu0; `make pyverbs-rereg` calls it.
#
#   testbed/pyverbs/dmabuf.sh BUILD in-place   each test has to pass
#   testbed/pyverbs/dmabuf.sh BUILD absent     the kernel has no method for it: those tests
#                                              have to be skipped for that, others to pass
#
# BUILD is build/pyverbs/VERSION (kernel/rxe-provider.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../peers/common.sh"

usage="usage: testbed/pyverbs/dmabuf.sh BUILD in-place|absent"
[ $# -eq 2 ] || fail "$usage"
build=$1 kernel=$2
case $kernel in
in-place | absent) ;;
*) fail "$usage" ;;
esac
[ -e "$build/version" ] || fail "there is no $build/version; build it: make pyverbs-rereg"
# Classes of tests/test_mr.py, and how many tests they have had so far: that many at
# least have to run.
classes=(DmaBufMRTest DmaBufTestCase)
rereg=4 others=10
unsupported='Rereg dma-buf MR is not supported'

export LD_LIBRARY_PATH=$build/lib PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3
loaded=$($python -c 'import pyverbs.mr; print(pyverbs.mr.__file__)') || fail "pyverbs of $build can not be loaded"
[[ $loaded == "$build/"* ]] || fail "Python loads pyverbs from $loaded"

modprobe softgpu personality=amdgpu || fail "softgpu is missing; build it: make softgpu KERNEL=$series"
card=$(realpath /run/gpurdma/pci/gpu0)
node=$(basename "$card"/drm/renderD*)
[ -e "/dev/dri/$node" ] || fail "gpu0 ($card) has no render node"
gid=$(gid_index)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# suite MEMORY [OPTION] runs the classes on memory of one kind, and writes "TEST VERDICT REASON" into the file now.
suite() {
	local memory=$1 status=0
	shift
	(cd "$build" && bounded 300 $python tests/run_tests.py --dev "$device" --gid "$gid" --gpu $((${node#renderD} - 128)) "$@" \
		-v "${classes[@]/#/tests.test_mr.}") >"$dir/log" 2>&1 || status=$?
	# "test_name (tests.test_mr.Class.test_name)", the docstring on a line of its own, then the verdict.
	awk '
		/^test_[A-Za-z0-9_]* \([A-Za-z0-9_.]*\)/ { name = $1 }
		name && /(^|\.\.\. )(ok|FAIL|ERROR|skipped .*)$/ {
			reason = ""
			if (match($0, /skipped .*/)) {
				reason = substr($0, RSTART + 8)
				verdict = "skip"
			} else
				verdict = /ok$/ ? "pass" : "fail"
			print name, verdict, reason
			name = ""
		}' "$dir/log" >"$dir/now"
	sed "s/^/$memory: /" "$dir/now"
	# A crash of the interpreter, or a line that this script cannot read, is no pass.
	[ "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$dir/log")" = "$(wc -l <"$dir/now")" ] ||
		{ cat "$dir/log" >&2; fail "$memory: pyverbs did not come to its end (status $status)"; }
	judge || { cat "$dir/log" >&2; fail "$memory: the tests above have failed, or were skipped"; }
	[ $status -eq 0 ] || { cat "$dir/log" >&2; fail "$memory: pyverbs ended with status $status"; }
}

# judge fails if a test has another verdict than it has to have, or if fewer tests than before ran.
judge() {
	awk -v kernel="$kernel" -v unsupported="$unsupported" -v rereg=$rereg -v others=$others '
		$1 ~ /rereg/ { n++ } $1 !~ /rereg/ { m++ }
		$1 ~ /rereg/ && kernel == "absent" { if ($2 != "skip" || !index($0, unsupported)) { bad = 1; print "unexpected: " $0 }; next }
		$2 != "pass" { bad = 1; print "unexpected: " $0 }
		END {
			if (n < rereg || m < others) { bad = 1; printf "only %d tests of re-registration and %d others ran\n", n, m }
			exit bad
		}' "$dir/now" >&2
}

suite VRAM
cp "$dir/now" "$dir/all"
suite GTT --gtt
cat "$dir/now" >>"$dir/all"
modprobe -r softgpu || fail "the tests have left something that holds the GPU"
pass "pyverbs of rdma-core $(cat "$build/version") on kernel $series, $kernel: $(awk '{ n[$2]++ } END { printf "%d passed, %d skipped", n["pass"], n["skip"] }' "$dir/all")"
