#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts promtool of Debian's package prometheus into a directory, and prints its path. The package itself is not
# installed: it would start a server on this machine.
#
#   promtool.sh DIR
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: promtool.sh DIR" >&2; exit 2; }
case $1 in
/*) dir=$1 ;;
*) dir=$PWD/$1 ;;
esac
program=$dir/promtool

fail() {
	echo "promtool: $*" >&2
	exit 1
}
# shellcheck source-path=SCRIPTDIR/../..
. "$(dirname "${BASH_SOURCE[0]}")/../../testbed/archive.sh"

if [ -x "$program" ]; then
	echo "$program"
	exit
fi
if installed=$(command -v promtool); then
	echo "$installed"
	exit
fi
for need in apt-get dpkg-deb tar; do
	command -v $need >/dev/null || fail "there is no $need: put a promtool of Prometheus 2.42 or later on the PATH"
done
mkdir -p "$dir"
work=$(mktemp -d "$dir/.get.XXXXXX")
trap 'rm -rf "$work"' EXIT
archive_dir "$work"
# Package lists that are missing or out of date are the usual cause; only root can refresh them.
get() { (cd "$work" && apt-get -q download prometheus >log 2>&1); }
if ! get; then
	if [ "$(id -u)" -ne 0 ]; then
		cat "$work/log" >&2
		fail "apt-get download prometheus failed: run apt-get update as root, or put a promtool on the PATH"
	fi
	apt-get -q -o DPkg::Lock::Timeout=120 update >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "apt-get update failed"; }
	get || { cat "$work/log" >&2; fail "apt-get download prometheus failed"; }
fi
dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
mv "$work/usr/bin/promtool" "$program"
echo "$program"
