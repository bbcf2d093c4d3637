#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# One run of p2pcheck, which p2pcheck.service starts. It keeps, in /var/lib/p2pcheck:
#
#   last.json      this run, for p2pcheck report, diff and --baseline
#   previous.json  the run before it that looked at the machine
#
# It prints what p2pcheck found, and what changed since the run before, on standard output, which is the
# journal. The exit status is that of p2pcheck. A run that could not look at the machine replaces last.json,
# too: an old run says nothing about the machine as it is. The arguments are P2PCHECK_ARGS.
set -u

dir=${STATE_DIRECTORY:-/var/lib/p2pcheck}
program=${P2PCHECK:-/usr/bin/p2pcheck}
cd "$dir" || exit 2

# looked FILE succeeds if the file is of a run that looked at the machine.
looked() {
	grep -Eq '"exit_status": *[013]\b' "$1" 2>/dev/null
}

rm -f next.json
# shellcheck disable=SC2086 # the arguments are meant to split
"$program" --json -o next.json ${P2PCHECK_ARGS:-}
status=$?
if looked last.json; then
	mv -f last.json previous.json || exit 2
else
	rm -f last.json
fi
if [ ! -e next.json ]; then
	echo "p2pcheck ended with $status and wrote no run: $dir has no last.json until a run writes it" >&2
	[ "$status" -ne 0 ] || status=2
	exit "$status"
fi
mv -f next.json last.json || exit 2
if looked last.json; then
	"$program" report last.json
	if looked previous.json; then
		echo "since the run before:"
		"$program" diff previous.json last.json
	fi
else
	echo "p2pcheck could not look at the machine:" >&2
	cat last.json >&2
fi
exit "$status"
