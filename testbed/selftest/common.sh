# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the test bed's own tests share. To be sourced, on the host.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
testbed=$PWD/build/bin/testbed
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
	echo "FAIL: $*" >&2
	for f in out err; do
		[ -s "$dir/$f" ] || continue
		echo "-- std$f" >&2
		tail -n 20 "$dir/$f" >&2
	done
	exit 1
}

# expect STATUS COMMAND... compares a command's exit status.
expect() {
	local want=$1 status=0
	shift
	"$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
	[ $status -eq "$want" ] || fail "$*: status $status, want $want"
}

# run STATUS ARGUMENT... is that for testbed.
run() {
	local want=$1
	shift
	expect "$want" "$testbed" "$@"
}

# said FILE TEXT... wants lines or parts of lines in out or err.
said() {
	local text
	for text in "${@:2}"; do
		grep -qF -- "$text" "$dir/$1" || fail "std$1 lacks: $text"
	done
}
