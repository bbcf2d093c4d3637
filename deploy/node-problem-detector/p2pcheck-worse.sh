#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A custom plugin of node-problem-detector: p2pcheck-worse.sh FILE [FLAG...] compares the
# node with the run in FILE, which p2pcheck --json has written. p2pcheck-worse.json calls it.
#
# It prints one line of at most 80 characters, and ends with 0 if nothing is worse than in
# FILE, with 1 if something is, and with 2 if p2pcheck did not compare. A pair that was
# staged, refused, lost, broken or unknown in FILE and still is counts as not worse.
set -u

file=$1
shift
text=$("${P2PCHECK:-/usr/local/bin/p2pcheck}" --format nagios --baseline "$file" "$@" 2>/dev/null)
said=${text#P2PCHECK * - }
said=${said%% | *}
# The performance data has worse=COUNT where two runs were compared.
figures=
case $text in
"P2PCHECK "*" | "*) figures=" ${text##* | } " ;;
esac
status=1
case $figures in
*" worse=0 "*) status=0 said="nothing is worse than in $file" ;;
*" worse="*) said=${said#*; worse than its baseline: } ;;
*) status=2 said=${said:-p2pcheck wrote nothing} ;;
esac
printf '%s\n' "$said" | head -n 1 | cut -c 1-80
exit $status
