# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the test bed's own tests share. To be sourced, on the host.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
testbed=$PWD/build/bin/testbed
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# What tally adds for the end of make test: how often a machine was started, and what
# of it went well. fail adds itself.
boots=0
passed=0
tally_file=
# tally SERIES NAME names what is counted from here on.
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
# ok TEXT... says what was promised and holds.
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

# run STATUS ARGUMENT... is that for testbed, which starts a machine.
run() {
	local want=$1
	shift
	[ "$1" != run ] || boots=$((boots + 1))
	expect "$want" "$testbed" "$@"
}

# unreported is standard error up to the report of a fault, which ends it.
unreported() { sed '/^testbed run: the kernel of node vm reported /,$d' "$dir/err"; }

# said FILE TEXT... wants lines or parts of lines in out or err.
said() {
	local text
	for text in "${@:2}"; do
		grep -qF -- "$text" "$dir/$1" || fail "std$1 lacks: $text"
	done
}
