#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# p2pcheck for Slurm: takes a node out of service when p2pcheck finds that a NIC does
# not reach a GPU, says why, and puts the node back when the fault is mended. docs/how-to/slurm.md
# has the lines for slurm.conf.
#
# As HealthCheckProgram it drains the node, and resumes it. As Prolog, where SLURM_JOB_ID is
# set, it drains the node and ends with 1: Slurm then requeues a batch job, and holds it unless
# slurm.conf has SchedulerParameters=nohold_on_prolog_fail.
#
# Only "P2PCHECK CRITICAL" drains: a pair is staged, refused, lost or broken, or a check
# fails. "P2PCHECK UNKNOWN" (a node without a GPU too), a crash and no answer are logged,
# and drain nothing unless P2PCHECK_UNKNOWN=drain. With --baseline FILE in P2PCHECK_ARGS
# a node is drained only if something is worse than in that file.
#
# It resumes a node whose reason begins with "p2pcheck: ", as its own reasons do, once
# p2pcheck finds nothing bad, or nothing worse than in the baseline. UNKNOWN without a baseline
# resumes nothing. It leaves a node alone that is down, fails or has another state besides.
#
# Settings, in the environment or in /etc/p2pcheck.conf:
#
#   P2PCHECK          the program            /usr/local/bin/p2pcheck
#   P2PCHECK_ARGS     its arguments, such as --skip NET --baseline FILE
#   P2PCHECK_TIMEOUT  seconds that it may take                        20
#   P2PCHECK_UNKNOWN  drain: also drain a node about which something is unknown
#   P2PCHECK_RESUME   no: never resume a node
#   P2PCHECK_DRYRUN   1: only say what it would do
#   P2PCHECK_SCONTROL scontrol                                  scontrol
#   P2PCHECK_NICS     a directory, such as /run/p2pcheck: as HealthCheckProgram also
#                     write there which NICs go with which GPU, for the TaskProlog
#   P2PCHECK_SLURM    the program slurm-p2p, for that  /usr/local/bin/slurm-p2p
#   P2PCHECK_SLURMD   slurmd, which says how it counts the GPUs     slurmd
#   P2PCHECK_ROOT     above sys and proc of the node                     /
#
# slurmd gives a HealthCheckProgram SLURMD_NODENAME alone, no PATH and no HOME. It ends one that
# takes more than 60 seconds.
#
# Exit status: 0 the node stays, or was drained or resumed; 1 as Prolog: the node is bad, or
# scontrol failed to drain or to resume it.
set -u

PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH
conf=${P2PCHECK_CONF:-/etc/p2pcheck.conf}
# A mistake in that file would end this shell, and drain each node whose Prolog it is.
broken=
if [ -r "$conf" ]; then
	# shellcheck source=/dev/null
	told=$( (. "$conf"; echo read) 2>&1)
	# shellcheck source=/dev/null
	case $told in
	*read) . "$conf" ;;
	*) broken="$conf: $told" ;;
	esac
fi
program=${P2PCHECK:-/usr/local/bin/p2pcheck}
limit=${P2PCHECK_TIMEOUT:-20}
unknown=${P2PCHECK_UNKNOWN:-}
resume=${P2PCHECK_RESUME:-yes}
dry=${P2PCHECK_DRYRUN:-}
scontrol=${P2PCHECK_SCONTROL:-scontrol}
nics=${P2PCHECK_NICS:-}
slurm=${P2PCHECK_SLURM:-/usr/local/bin/slurm-p2p}
slurmd=${P2PCHECK_SLURMD:-slurmd}
root=${P2PCHECK_ROOT:-/}
# Slurm's name of this node. slurmd gives it to all its programs; by hand it is the host's name.
node=${SLURMD_NODENAME:-}
if [ -z "$node" ]; then
	node=$(uname -n)
	node=${node%%.*}
fi
# This program's own reasons begin with this text, by which it recognizes them.
ours="p2pcheck: "

say() {
	echo "p2pcheck-health: $*" >&2
	if [ -z "$dry" ] && command -v logger >/dev/null 2>&1; then
		logger -t p2pcheck-health -- "$*" || :
	fi
}

# reason TEXT prints the text as a reason: one line of at most 200 characters.
reason() {
	printf '%s' "$1" | tr '\n\t"' "  '" | tr -d '\000-\037\177' | cut -c 1-200
}

# slurm_says ARGUMENT...: runs scontrol, and ends it when slurmctld does not answer in time.
slurm_says() {
	timeout -k 2 8 "$scontrol" "$@"
}

# look: reads the node's state and reason into $state and $was. Slurm adds " [USER@TIME]" to a
# reason. Fails if they cannot be read, and says why.
look() {
	if ! shown=$(slurm_says show node "$node" 2>&1); then
		say "scontrol does not show $node: $(reason "$shown")"
		return 1
	fi
	state='' was=''
	seen=''
	while IFS= read -r line; do
		case $line in
		"   State="*)
			[ -n "$state" ] || { state=${line#*=} state=${state%% *}; } ;;
		"   Reason="*) # the first: a comment may have such a line, too, and comes later
			[ -n "$seen" ] || { seen=1 was=${line#*=}; } ;;
		esac
	done <<-SHOWN
		$shown
	SHOWN
	if [ -z "$state" ]; then
		say "scontrol shows no state of $node: $(reason "$shown")"
		return 1
	fi
}

# drain WHY: drains the node, and fails if the node is not drained afterwards.
drain() {
	look || return 1
	case $state in
	*DRAIN*)
		case $was in
		"$1 ["*) say "$node is drained already: $1" ;;
		"$ours"*) # by this program, for something else
			if answer=$(slurm_says update "NodeName=$node" "Reason=$1" 2>&1); then
				say "$node stays drained, now for this: $1"
			else
				say "scontrol did not change the reason of $node: $(reason "$answer")"
			fi ;;
		*) say "$node is drained already, not by p2pcheck: $1" ;;
		esac
		return 0 ;;
	esac
	if answer=$(slurm_says update "NodeName=$node" State=DRAIN "Reason=$1" 2>&1); then
		say "drained $node: $1"
		return 0
	fi
	say "scontrol did not drain $node: $1: $(reason "$answer")"
	return 1
}

# bad REASON: p2pcheck finds the node bad. It is to take no more jobs.
bad() {
	why="$ours$(reason "$1")"
	if [ -n "$dry" ]; then
		say "would drain $node: $why"
		return 0
	fi
	if [ -n "${SLURM_JOB_ID:-}" ]; then
		# slurmd drains the node in any case, for "Prolog error", if no reason is there.
		drain "$why" || say "$node is bad, and Slurm drains it for its Prolog's failure: $why"
		return 1
	fi
	drain "$why"
}

# good WORDS: nothing is bad, or nothing is worse than in the baseline. Resumes the node.
good() {
	if [ -n "${SLURM_JOB_ID:-}" ] || [ "$resume" = no ]; then
		return 0
	fi
	look || return 0
	case $state in
	*DRAIN*) ;;
	*) return 0 ;;
	esac
	case $was in
	"$ours"*) ;;
	*) return 0 ;; # the reason of another program or of an administrator
	esac
	# Any other word of the state is a reason to leave the node alone: down, failing, a
	# maintenance, a restart that an administrator has asked for.
	for word in $(printf '%s' "$state" | tr '+' ' '); do
		case $word in
		IDLE | ALLOCATED | MIXED | COMPLETING | DRAIN | DRAINED | DRAINING | RESERVED | PLANNED | CLOUD | DYNAMIC_NORM) ;;
		*)
			say "$node stays drained, for its state is $state: $1"
			return 0 ;;
		esac
	done
	if [ -n "$dry" ]; then
		say "would resume $node, drained for $was: $1"
		return 0
	fi
	if answer=$(slurm_says update "NodeName=$node" State=RESUME 2>&1); then
		say "resumed $node, drained for $was: $1"
		# Slurm 24.11 keeps a reason until the next job. With it, a later drain would look like ours.
		if look; then
			case $was in
			"$ours"*) slurm_says update "NodeName=$node" "Reason=resumed, was ${was% \[*}" >/dev/null 2>&1 ;;
			esac
		fi
		return 0
	fi
	say "scontrol did not resume $node: $(reason "$answer")"
	return 1
}

# undecided REASON: p2pcheck does not know whether the node is bad.
undecided() {
	if [ "$unknown" = drain ]; then
		bad "$1"
		return
	fi
	say "$1"
	return 0
}

# plan: writes which NICs go with which GPU. If it cannot make a new plan, it removes the old one.
plan() {
	if [ -z "$nics" ] || [ -n "$dry" ] || [ -n "${SLURM_JOB_ID:-}" ]; then
		return 0
	fi
	file=$nics/$node.json
	umask 022
	mkdir -p "$nics" || { say "the plan of NICs: $nics cannot be made"; return 0; }
	if [ -n "$hangs" ]; then # a second try would take the check beyond slurmd's limit
		rm -f "$file"
		say "no plan of NICs, so that jobs choose by themselves: $program gives no answer"
		return 0
	fi
	run=$nics/.$node.run
	rm -f "$run"
	# p2pcheck's status is the machine's, and does not count here: slurm-p2p reads the file. The file has lines of the
	# kernel's log, which are not for all users.
	# shellcheck disable=SC2086 # the arguments are meant to split
	answer=$(umask 077; timeout -k 2 "$limit" "$program" --json -o "$run" ${P2PCHECK_ARGS:-} 2>&1 >/dev/null)
	ended=$?
	if [ ! -e "$run" ]; then
		rm -f "$file"
		say "no plan of NICs, so that jobs choose by themselves: $program ended with $ended, and wrote no run: $(reason "$answer")"
		return 0
	fi
	if ! answer=$(timeout -k 2 "$limit" "$slurm" plan --run "$run" --root "$root" --slurmd "$slurmd" --scontrol "$scontrol" --node "$node" -o "$file" 2>&1); then
		rm -f "$file"
		say "no plan of NICs, so that jobs choose by themselves: $(reason "$answer")"
	elif [ -n "$answer" ]; then
		say "$(reason "$answer")"
	fi
	rm -f "$run"
}

if [ -n "$broken" ]; then
	say "nothing was checked, for sh cannot read the settings in $(reason "$broken")"
	exit 0
fi
hangs=
if [ ! -x "$program" ]; then
	undecided "$program is not there"
	status=$?
	plan
	exit "$status"
fi
# The statuses of this format: 0 good, 1 warnings, 2 bad, 3 unknown.
# shellcheck disable=SC2086 # the arguments are meant to split
text=$(timeout -k 2 "$limit" "$program" --format nagios ${P2PCHECK_ARGS:-} 2>/dev/null)
status=$?
case $status in
124 | 137) hangs=1 ;;
esac
said=${text#P2PCHECK * - }
said=${said%% | *}
# The performance data has worse=COUNT where there is a baseline. p2pcheck writes no other "|".
figures=
case $text in
*" | "*) figures=" ${text##* | } " ;;
esac
worse=
case $figures in
*" worse=0 "*) worse=0 ;;
esac
# The status alone says nothing: a program that crashes ends with one of these, too.
case "$status $text" in
"0 P2PCHECK OK "* | "1 P2PCHECK WARNING "*) good "$(reason "$said")" ;;
"2 P2PCHECK CRITICAL "*)
	if [ "$worse" = 0 ]; then
		say "$node stays, for nothing is worse than in the baseline: $(reason "$said")"
		good "$(reason "$said")"
	else
		bad "$said"
	fi ;;
"3 P2PCHECK UNKNOWN "*)
	undecided "$said"
	result=$?
	if [ "$worse" = 0 ] && [ "$unknown" != drain ]; then
		good "$(reason "$said")"
	else
		(exit "$result")
	fi ;;
124* | 137*) undecided "no answer in $limit seconds" ;;
*) undecided "$program ended with $status, and did not say why: $(reason "$text")" ;;
esac
status=$?
plan
exit "$status"
