#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A root file system with Slurm's daemons and munge, from Debian's packages, unpacked. None of
# its programs runs while it is made, and nothing is installed on this machine.
#
#   testbed/slurm.sh SUITE      (bookworm: Slurm 22.05, trixie: 24.11) fetch it, or find it fetched
#
# Writes build/slurm/SUITE. The script fetches it once and keeps it; REFRESH=1 fetches it again.
# Status 77: it cannot be had here.
set -euo pipefail

suite=$1
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
out=$build/slurm/$suite
# shellcheck source-path=SCRIPTDIR
. "$top/testbed/archive.sh"

packages=(
	slurmctld slurmd slurm-client munge
	# A shell, and the programs that the health check and the test's jobs call.
	bash dash coreutils util-linux grep sed mawk libc-bin base-files
)

fail() {
	echo "testbed/slurm.sh: $*" >&2
	exit 1
}

unavailable() {
	echo "testbed/slurm.sh: $*" >&2
	exit 77
}

layout="layout 1 $suite ${packages[*]}" # raise it when the files that this script writes change
[ -z "${REFRESH:-}" ] || rm -f "$out/.inputs"
[ "$(cat "$out/.inputs" 2>/dev/null)" != "$layout" ] || exit 0

mkdir -p "$build/slurm"
exec 9>"$build/slurm/.lock-$suite"
flock -w 600 9 || fail "another run has held $build/slurm/.lock-$suite for 10 minutes"
[ "$(cat "$out/.inputs" 2>/dev/null)" != "$layout" ] || exit 0 # by the run that held the lock

[ "$(id -u)" = 0 ] || unavailable "making a root file system takes root"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing; run testbed/setup.sh"
why=$(archive_no_mounts)
[ -z "$why" ] || unavailable "making a root file system takes mounts: $why"
uri=$(archive_uri)
[ -n "$uri" ] || fail "apt on this machine has no Debian archive; run: apt-get update"

rm -rf --one-file-system "$build/slurm/.$suite".*
stage=$(mktemp -d "$build/slurm/.$suite.XXXXXX")
trap 'rm -rf --one-file-system "$stage"' EXIT
chmod 755 "$stage"
archive_apt "$stage/apt" deb "$uri" "$suite"
echo "testbed: fetching Slurm and munge from Debian's $suite" >&2
APT_CONFIG=$stage/apt/apt.conf mmdebstrap --variant=extract --mode=root \
	--keyring="$archive_keyring" --aptopt='APT::Install-Recommends "false"' --skip=essential/unlink,cleanup/apt \
	--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
	--include="$(IFS=, && echo "${packages[*]}")" "$suite" "$stage/root" "$stage/apt/sources.list" >"$stage/log" 2>&1 || {
	tail -n 20 "$stage/log" >&2
	fail "mmdebstrap failed: $(archive_advice "$(cat "$stage/log")")"
}
archive_record debs -o "$stage/root/.downloads.json" -for "slurm-$suite" -lists "$stage/root/var/lib/apt/lists" \
	"$stage"/root/var/cache/apt/archives/*.deb
rm -rf "$stage/root"/var/{cache,lib}/apt
: >"$stage/root/etc/apt/sources.list" # the result must not depend on the mirror

# Files that maintainer scripts would have made, and that programs expect.
root=$stage/root
[ -e "$root/usr/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
ln -sf mawk "$root/usr/bin/awk"
for p in slurmctld slurmd slurmstepd; do
	[ -e "$root/usr/sbin/$p" ] || ln -s "$p-wlm" "$root/usr/sbin/$p"
done
# The user of the test's jobs is alice.
cat >"$root/etc/passwd" <<-'END'
	root:x:0:0:root:/root:/bin/sh
	munge:x:110:110::/nonexistent:/usr/sbin/nologin
	slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin
	alice:x:1000:1000::/tmp:/bin/sh
END
printf '%s\n' root:x:0: munge:x:110: slurm:x:64030: alice:x:1000: >"$root/etc/group"
printf '127.0.0.1\tlocalhost\n' >"$root/etc/hosts"
printf '%s: files\n' passwd group hosts >"$root/etc/nsswitch.conf"
for d in run tmp var etc/slurm etc/munge usr/local dev proc sys srv opt; do
	mkdir -p "$root/$d"
done
echo "$layout" >"$root/.inputs"
rm -rf --one-file-system "$out"
mv -T "$root" "$out"
echo "testbed: Slurm of Debian's $suite, in $out" >&2
