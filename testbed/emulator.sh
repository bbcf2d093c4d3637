#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches a newer QEMU than Debian 12's 7.2, which takes half as long again for the same
# tests, and has two faults that kill a kernel now and then (Corrupted in testbed/vm).
# The newer QEMU comes from Debian 13 with the libraries that it needs, and is not
# installed: build/qemu/qemu-system-x86_64 starts it, and
# build/qemu-arm64/qemu-system-aarch64 the one for arm64, which has its UEFI beside it.
#
#   testbed/emulator.sh [amd64|arm64]     fetch it, or find it fetched
#
# If it cannot be had, the script says why, and the test bed uses the installed QEMU.
# The script fetches it once and keeps it; REFRESH=1 fetches it again.
set -euo pipefail

suite=trixie
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
case ${1:-amd64} in
amd64)
	qemu=$build/qemu program=qemu-system-x86_64 package=qemu-system-x86
	packages=$package firmware=seabios
	;;
arm64)
	qemu=$build/qemu-arm64 program=qemu-system-aarch64 package=qemu-system-arm
	packages=$package,qemu-efi-aarch64 firmware=qemu-efi-aarch64
	;;
*)
	echo "usage: testbed/emulator.sh [amd64|arm64]" >&2
	exit 1
	;;
esac
part=${qemu##*/}
layout="layout 2 $suite" # raise it when the files that this script writes change
# shellcheck source-path=SCRIPTDIR
. "$top/testbed/archive.sh"

# The next try is a day later, and not in every target of the Makefile.
unavailable() {
	echo "testbed/emulator.sh: $*; the installed $program is used, which is slower, if there is one (package $package)" >&2
	mkdir -p "$qemu"
	echo "$*" >"$qemu/.unavailable"
	exit 0
}

[ -z "${REFRESH:-}" ] || rm -f "$qemu"/.inputs "$qemu"/.unavailable
[ "$(cat "$qemu/.inputs" 2>/dev/null)" != "$layout" ] || exit 0
[ -z "$(find "$qemu/.unavailable" -mtime -1 2>/dev/null)" ] || exit 0

installed=$($program --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\)\..*/\1/p') || true
[ "${installed:-0}" -lt 10 ] || exit 0

mkdir -p "$build"
exec 9>"$build/.lock-$part"
flock -w 600 9 || unavailable "another run has held $build/.lock-$part for 10 minutes"
[ "$(cat "$qemu/.inputs" 2>/dev/null)" != "$layout" ] || exit 0 # by the run that held the lock

[ "$(dpkg --print-architecture)" = amd64 ] || unavailable "a newer QEMU is fetched for amd64 only"
[ "$(id -u)" = 0 ] || unavailable "fetching a newer QEMU takes root"
command -v mmdebstrap >/dev/null || unavailable "mmdebstrap is missing"
why=$(archive_no_mounts)
[ -z "$why" ] || unavailable "fetching a newer QEMU takes mounts: $why"
uri=$(archive_uri)
[ -n "$uri" ] || unavailable "apt on this machine has no Debian archive; run: apt-get update"

rm -rf --one-file-system "$build"/.$part.*
stage=$(mktemp -d "$build/.$part.XXXXXX")
trap 'rm -rf --one-file-system "$stage"' EXIT
chmod 755 "$stage"
archive_apt "$stage/apt" deb "$uri" "$suite"
echo "testbed: fetching $package from Debian's $suite" >&2
APT_CONFIG=$stage/apt/apt.conf mmdebstrap --variant=extract --mode=root --keyring="$archive_keyring" \
	--aptopt='APT::Install-Recommends "false"' --skip=essential/unlink,cleanup/apt \
	--include="$packages" "$suite" "$stage/root" "$stage/apt/sources.list" >"$stage/log" 2>&1 || {
	tail -n 5 "$stage/log" >&2
	why=$(archive_advice "$(cat "$stage/log")")
	unavailable "${why:-mmdebstrap failed}"
}
archive_record debs -o "$stage/.downloads.json" -for "$part" -lists "$stage/root/var/lib/apt/lists" \
	"$stage"/root/var/cache/apt/archives/*.deb
rm -rf "$stage/apt" "$stage/root"/var/{cache,lib}/apt "$stage/log"
: >"$stage/root/etc/apt/sources.list" # the result must not depend on the mirror

# QEMU runs with the C library of its suite: this machine's is older.
cat >"$stage/$program" <<RUN
#!/bin/sh
root=\$(dirname "\$(readlink -f "\$0")")/root
lib=\$root/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR="\$lib/qemu"
exec "\$lib/ld-linux-x86-64.so.2" --library-path "\$lib" "\$root/usr/bin/$program" \\
	-L "\$root/usr/share/qemu" -L "\$root/usr/share/$firmware" "\$@"
RUN
chmod 755 "$stage/$program"
version=$("$stage/$program" --version | head -n 1) || unavailable "Debian's $suite has a QEMU that does not start here"
echo "$layout" >"$stage/.inputs"
rm -rf --one-file-system "$qemu"
mv -T "$stage" "$qemu"
echo "testbed: $version, in $qemu" >&2
