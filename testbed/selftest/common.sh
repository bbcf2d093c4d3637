# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Functions of the test bed's own tests, which source this file on the host.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
testbed=$PWD/build/bin/testbed
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The counts that the end of `make test` adds up: machines that were started, and promises
# that hold. fail adds the failure.
boots=0
passed=0
tally_file=
# tally SERIES NAME names the file and the title of the counts from here on.
tally() {
	tally_file=build/testbed/$1/tally-$2
	tally_title="the test bed itself on $1"
	mkdir -p "$(dirname "$tally_file")"
	rm -f "$tally_file"
}
write_tally() {
	[ -n "$tally_file" ] || return 0
	printf '%s, %s boots: %s passed, %s failed, 0 skipped\n' "$tally_title" $boots $passed "$1" >"$tally_file"
}
# ok TEXT... prints and counts a promise that holds.
ok() {
	echo "ok $*"
	passed=$((passed + 1))
	write_tally 0
}

fail() {
	echo "FAIL: $*" >&2
	write_tally 1
	[ -z "$tally_file" ] || echo "FAIL $tally_title: $*" >>"$tally_file"
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

# run STATUS ARGUMENT... does that with the command testbed, and counts the machine that it starts.
run() {
	local want=$1
	shift
	[ "$1" != run ] || boots=$((boots + 1))
	expect "$want" "$testbed" "$@"
}

# unreported prints standard error up to the report of a fault, which comes last.
unreported() { sed '/^testbed run: the kernel of node vm reported /,$d' "$dir/err"; }

# said FILE TEXT... fails unless a line of out or err has each text.
said() {
	local text
	for text in "${@:2}"; do
		grep -qF -- "$text" "$dir/$1" || fail "std$1 lacks: $text"
	done
}
