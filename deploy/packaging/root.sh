#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a root file system of a Debian suite once, and keeps it. The tests install the packages in it.
#
#   deploy/packaging/root.sh SUITE OUT     (bookworm, trixie)
#
# REFRESH=1 makes it again. The status 77 says that it cannot be made here.
set -euo pipefail
suite=$1 out=$2
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR/../.. source=testbed/archive.sh
. "$top/testbed/archive.sh"

# Debian's packages that use files of our packages.
packages=systemd,man-db,bash-completion,iproute2
made="layout 1 $suite $packages"
[ -n "${REFRESH:-}" ] || [ "$(cat "$out.made" 2>/dev/null)" != "$made" ] || exit 0

fail() {
	echo "deploy/packaging/root.sh: $*" >&2
	exit "${status:-1}"
}
[ "$(id -u)" = 0 ] || status=77 fail "making a root file system takes root"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing; run testbed/setup.sh"
why=$(archive_no_mounts)
[ -z "$why" ] || status=77 fail "making a root file system takes mounts: $why"
uri=$(archive_uri)
[ -n "$uri" ] || fail "apt on this machine has no Debian archive; run: apt-get update"

mkdir -p "$(dirname "$out")"
rm -rf --one-file-system "$out" "$out.made"
stage=$(mktemp -d)
trap 'rm -rf --one-file-system "$stage"' EXIT
archive_apt "$stage" deb "$uri" "$suite"
echo "packages: fetching a root of Debian's $suite" >&2
APT_CONFIG=$stage/apt.conf mmdebstrap --variant=minbase --mode=root --keyring="$archive_keyring" \
	--aptopt='APT::Install-Recommends "false"' --include="$packages" "$suite" "$out" "$stage/sources.list" >"$stage/log" 2>&1 || {
	tail -n 20 "$stage/log" >&2
	rm -rf --one-file-system "$out"
	fail "mmdebstrap failed: $(archive_advice "$(cat "$stage/log")")"
}
: >"$out/etc/apt/sources.list" # the result must not depend on the mirror
echo "$made" >"$out.made"
