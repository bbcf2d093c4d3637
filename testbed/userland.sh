#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the root file system of a guest whose processor is not this machine's: Debian's
# packages for it, of the suite that this machine has, unpacked. None of their programs
# runs here. C programs for the guest are compiled and linked with this root, too.
#
#   testbed/userland.sh ARCH      (arm64) fetch it, or find it fetched
#
# Writes build/userland-ARCH. The script fetches it once and keeps it; REFRESH=1 fetches it again.
set -euo pipefail

arch=$1
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
out=$build/userland-$arch
# shellcheck source-path=SCRIPTDIR
. "$top/testbed/archive.sh"

packages=(
	# A shell, and the programs that scripts call.
	bash dash coreutils util-linux mount grep sed mawk findutils diffutils gzip xz-utils tar hostname
	procps base-files libc-bin openssl kmod binutils iproute2 iputils-ping pciutils strace
	# RDMA: libraries, providers and the programs of testbed/peers.
	libibverbs1 ibverbs-providers ibverbs-utils librdmacm1 rdmacm-utils rdma-core perftest libfabric1
	python3 python3-pyverbs
	# Headers and libraries for C programs.
	libc6-dev linux-libc-dev libibverbs-dev librdmacm-dev libfabric-dev
)

fail() {
	echo "testbed/userland.sh: $*" >&2
	exit 1
}

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
layout="layout 1 $suite ${packages[*]}" # raise it when the files that this script writes change
[ -z "${REFRESH:-}" ] || rm -f "$out/.inputs"
[ "$(cat "$out/.inputs" 2>/dev/null)" != "$layout" ] || exit 0

mkdir -p "$build"
exec 9>"$build/.lock-userland-$arch"
flock -w 600 9 || fail "another run has held $build/.lock-userland-$arch for 10 minutes"
[ "$(cat "$out/.inputs" 2>/dev/null)" != "$layout" ] || exit 0 # by the run that held the lock

# The status 77 says that the root cannot be had here. It is no failure.
unavailable() {
	echo "testbed/userland.sh: $*" >&2
	exit 77
}

[ -n "$suite" ] || fail "/etc/os-release does not say which suite of Debian this is"
[ "$(id -u)" = 0 ] || unavailable "making a root file system takes root"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing; run testbed/setup.sh"
why=$(archive_no_mounts)
[ -z "$why" ] || unavailable "making a root file system takes mounts: $why"
uri=$(archive_uri)
[ -n "$uri" ] || fail "apt on this machine has no Debian archive; run: apt-get update"

rm -rf --one-file-system "$build/.userland-$arch".*
stage=$(mktemp -d "$build/.userland-$arch.XXXXXX")
trap 'rm -rf --one-file-system "$stage"' EXIT
chmod 755 "$stage"
archive_apt "$stage/apt" deb "$uri" "$suite"
echo "testbed: fetching the packages of a guest of $arch from Debian's $suite" >&2
APT_CONFIG=$stage/apt/apt.conf mmdebstrap --variant=extract --mode=root --architectures="$arch" \
	--keyring="$archive_keyring" --aptopt='APT::Install-Recommends "false"' --skip=essential/unlink,cleanup/apt \
	--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
	--include="$(IFS=, && echo "${packages[*]}")" "$suite" "$stage/root" "$stage/apt/sources.list" >"$stage/log" 2>&1 || {
	tail -n 20 "$stage/log" >&2
	fail "mmdebstrap failed: $(archive_advice "$(cat "$stage/log")")"
}
archive_record debs -o "$stage/root/.downloads.json" -for "userland-$arch" -lists "$stage/root/var/lib/apt/lists" \
	"$stage"/root/var/cache/apt/archives/*.deb
rm -rf "$stage/root"/var/{cache,lib}/apt
: >"$stage/root/etc/apt/sources.list" # the result must not depend on the mirror

# Files that maintainer scripts would have made, and that programs expect.
ln -s mawk "$stage/root/usr/bin/awk"
echo 'root:x:0:0:root:/root:/bin/bash' >"$stage/root/etc/passwd"
echo 'root:x:0:' >"$stage/root/etc/group"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$stage/root/etc/hosts"
echo "$layout" >"$stage/root/.inputs"
rm -rf --one-file-system "$out"
mv -T "$stage/root" "$out"
echo "testbed: a guest's root for $arch, in $out" >&2
