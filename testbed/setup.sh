#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that building and running the project needs on Debian 12,
# or prints the command that does. It does not install Go, and fails without it.
# It is quick when nothing is missing, so that every target can call it.
#
#   testbed/setup.sh [test|bench|arm64|packages|dra|pyverbs|rdma-core-check]
#                                         adds the packages that only `make test`,
#                                         only the benchmarks' peers, only guests
#                                         of arm64, only packages, only
#                                         `make dra-vm`, only rdma-core's Python
#                                         module, or only rdma-core's checks use
#   testbed/setup.sh page                 installs only those of `make test-page`
#
# Leaves the list of their versions and hashes in build/host (testbed/downloads).
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$top/testbed/archive.sh"
record=${BUILD:-$top/build}/host/${1:-base}/.downloads.json

# Tools for the host, then the headers that tests compare our ABI with, then the
# peers that run in the guest: the guest's root is the host's.
packages='
ca-certificates git make gcc libc6-dev libelf-dev kmod xz-utils patch
bc bison flex libssl-dev pahole
qemu-system-x86 iproute2 mmdebstrap
linux-libc-dev libdrm-dev
libibverbs-dev librdmacm-dev ibverbs-providers ibverbs-utils rdmacm-utils
rdma-core perftest python3-pyverbs libfabric-dev
'
# The BPF objects are committed; a test compiles them and compares. sparse and
# perl check the kernel's part. libfabric's source comes without a configure. libibverbs with
# the patched provider is built with cmake and libnl. crun runs the container image.
[ "${1-}" != test ] || packages="$packages clang-14 llvm-14 sparse perl autoconf automake libtool
cmake pkg-config libnl-3-dev libnl-route-3-dev crun"
[ "${1-}" != bench ] || packages="$packages bpftrace pciutils hwloc-nox valgrind ucx-utils"
case ${1-} in
pyverbs | rdma-core-check) packages="$packages cmake pkg-config libnl-3-dev libnl-route-3-dev cython3 python3-dev" ;;
esac
[ "${1-}" != rdma-core-check ] || packages="$packages ninja-build g++ dpkg-dev python3-pkg-resources abi-dumper abi-compliance-checker"
# Programs for guests of arm64.
[ "${1-}" != arm64 ] || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
# For packages: a compiler for the other architecture, checks of packages, and systemd's own tools.
[ "${1-}" != packages ] || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross
lintian rpm man-db systemd"
# Runtimes of containers.
[ "${1-}" != dra ] || packages="$packages runc crun"

# The browser that pages are tested in, and npm, which downloads the rules of accessibility.
if [ "${1-}" = page ]; then
	packages="ca-certificates chromium-headless-shell fonts-dejavu-core"
	command -v npm >/dev/null 2>&1 || packages="$packages npm"
fi

fail() {
	echo "setup: $*" >&2
	exit 1
}

# Go 1.21 and newer fetch the toolchain that go.mod names.
command -v go >/dev/null 2>&1 ||
	fail "Go is not installed or not on the PATH: version 1.21 or newer is needed (https://go.dev/dl/)"
version=$(go env GOVERSION 2>/dev/null || true)
case $version in
go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*)
	fail "$version is too old: Go 1.21 or newer is needed (https://go.dev/dl/)" ;;
go1.*) ;;
*) fail "cannot tell the version of Go (go env GOVERSION printed '$version'): 1.21 or newer is needed" ;;
esac

command -v dpkg-query >/dev/null 2>&1 ||
	fail "this is not a Debian system (no dpkg-query): Debian 12 is needed, whose packages have the test kernels, too"

missing=
# shellcheck disable=SC2086 # the list is meant to split
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $packages 2>/dev/null | sed -n 's/^ii *//p' || true)
for p in $packages; do
	printf '%s\n' "$installed" | grep -qx "$p" || missing="$missing $p"
done

# list [ARGUMENT...] writes the list of the packages. For packages that were here already it
# takes the facts from dpkg's status and apt's indexes.
list() {
	mkdir -p "${record%/*}"
	# shellcheck disable=SC2086
	archive_record host -o "$record" -for host "$@" $packages
}
if [ -z "$missing" ]; then
	# shellcheck disable=SC3013 # Debian's sh has -nt
	if [ ! "$record" -nt /var/lib/dpkg/status ] || [ ! "$record" -nt /var/lib/apt/lists ] || [ ! "$record" -nt "$0" ]; then
		list
	fi
	exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
	fail "packages are missing; run as root:
  apt-get update && apt-get install --no-install-recommends$missing"
fi

echo "setup: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# The packages go into a directory apart from apt's own archive, which another apt
# run may empty while this one works. Its mode lets apt download as another user.
cache=$(mktemp -d)
chmod 755 "$cache"
trap 'rm -rf "$cache"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$cache/partial"
install_missing() {
	# shellcheck disable=SC2086
	apt-get -o Dir::Cache::archives="$cache" -o APT::Keep-Downloaded-Packages=true -o DPkg::Lock::Timeout=120 \
		-q -y install --no-install-recommends $missing
}
log=$cache/log
if ! install_missing >"$log" 2>&1; then
	# Package lists that are missing or out of date are the usual cause.
	echo "setup: refreshing apt's package lists" >&2
	apt-get -q update >"$log" 2>&1 || {
		cat "$log" >&2
		why=$(archive_advice "$(cat "$log")")
		fail "apt-get update failed${why:+: $why}"
	}
	install_missing >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get install failed"; }
fi
list -debs "$cache"
