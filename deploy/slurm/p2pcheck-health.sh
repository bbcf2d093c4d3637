#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# p2pcheck for Slurm: takes a node out of service when p2pcheck finds that a NIC does
# not reach a GPU, and says why. docs/fleet.md has the lines for slurm.conf.
#
# As HealthCheckProgram it drains the node itself. As Prolog, where SLURM_JOB_ID
# is set, it ends with 1, and slurmd drains the node and requeues the job. It
# never resumes a node: it does not know why else the node may be drained.
#
# Only "P2PCHECK CRITICAL" drains: a pair is staged, refused, lost or broken, or a check
# fails. "P2PCHECK UNKNOWN" (a node without a GPU too), a crash and no answer are logged,
# and drain nothing unless P2PCHECK_UNKNOWN=drain. With --baseline FILE in P2PCHECK_ARGS
# a node is drained only if something is worse than in that file.
#
# Settings, in the environment or in /etc/p2pcheck.conf:
#
#   P2PCHECK          the program            /usr/local/bin/p2pcheck
#   P2PCHECK_ARGS     its arguments, such as --skip NET --baseline FILE
#   P2PCHECK_TIMEOUT  seconds that it may take                        30
#   P2PCHECK_UNKNOWN  drain: what is unknown drains the node as well
#   P2PCHECK_DRYRUN   1: only say what would be done
#
# Exit status: 0 the node stays, or it was drained; 1 the node is bad, as Prolog, or
# scontrol did not drain it.
set -u

conf=${P2PCHECK_CONF:-/etc/p2pcheck.conf}
# shellcheck source=/dev/null
[ ! -r "$conf" ] || . "$conf"
program=${P2PCHECK:-/usr/local/bin/p2pcheck}
limit=${P2PCHECK_TIMEOUT:-30}
unknown=${P2PCHECK_UNKNOWN:-}
dry=${P2PCHECK_DRYRUN:-}
# What Slurm calls this node. slurmd says it to a Prolog.
node=${SLURMD_NODENAME:-$(uname -n)}
node=${node%%.*}

say() {
	echo "p2pcheck-health: $*" >&2
	if [ -z "$dry" ] && command -v logger >/dev/null 2>&1; then
		logger -t p2pcheck-health -- "$*" || :
	fi
}

# Reasons are one line, and not a long one.
reason() {
	printf '%s' "$1" | tr '\n"' " '" | cut -c 1-200
}

# bad REASON: the node is to take no more jobs.
bad() {
	why="p2pcheck: $(reason "$1")"
	if [ -n "$dry" ]; then
		say "would drain $node: $why"
		return 0
	fi
	if [ -n "${SLURM_JOB_ID:-}" ]; then
		# slurmd drains the node. The reason is Slurm's own, so it is logged.
		say "$why"
		return 1
	fi
	state=$(scontrol -o show node "$node" 2>/dev/null) || state=
	state=" $state"
	state=${state#* State=}
	case ${state%% *} in
	*DRAIN*) # The node has a reason already.
		say "$node is drained already: $why"
		return 0 ;;
	esac
	if scontrol update "NodeName=$node" State=DRAIN "Reason=$why"; then
		say "drained $node: $why"
		return 0
	fi
	say "scontrol did not drain $node: $why"
	return 1
}

# undecided REASON: it is not known whether the node is bad.
undecided() {
	if [ "$unknown" = drain ]; then
		bad "$1"
		return
	fi
	say "$1"
	return 0
}

if [ ! -x "$program" ]; then
	undecided "$program is not there"
	exit
fi
# The formats' own statuses: 0 good, 1 warnings, 2 bad, 3 unknown.
# shellcheck disable=SC2086 # the arguments are meant to split
text=$(timeout -k 5 "$limit" "$program" --format nagios ${P2PCHECK_ARGS:-} 2>/dev/null)
status=$?
said=${text#P2PCHECK * - }
said=${said%% | *}
# The performance data has worse=COUNT where there is a baseline. p2pcheck writes no other "|".
figures=
case $text in
*" | "*) figures=" ${text##* | } " ;;
esac
# The status alone says nothing: a program that crashes has one as well.
case "$status $text" in
"0 P2PCHECK OK "* | "1 P2PCHECK WARNING "*) ;;
"2 P2PCHECK CRITICAL "*)
	case $figures in
	*" worse=0 "*) say "$node stays, for nothing is worse than in the baseline: $(reason "$said")" ;;
	*) bad "$said" ;;
	esac ;;
"3 P2PCHECK UNKNOWN "*) undecided "$said" ;;
124* | 137*) undecided "no answer in $limit seconds" ;;
*) undecided "$program ended with $status, and did not say why: $(reason "$text")" ;;
esac
