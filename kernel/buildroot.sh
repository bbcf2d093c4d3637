#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Gets a kernel series that Debian 12 neither ships nor can compile: its image
# for the test bed, and a root file system with the compiler that it needs.
#
#   kernel/buildroot.sh SERIES            make both, unless they exist
#   kernel/buildroot.sh SERIES CMD ARGS   run CMD in the root, in this directory
#
# Writes build/kernels/SERIES/ in the layout that `testbed fetch` uses (image/,
#        source.tar.xz, release, version, inputs; headers/kdir leads into the
#        root) and build/roots/SERIES/, each put in place in one step.
#
# The packages come from the archive that this machine's own apt is configured
# with; apt's state stays under build/roots. FLAVOUR is Debian's name for the
# kernel's build: amd64, or arm64 (pages of 4 KiB) or arm64-16k, for which a
# cross compiler in a root for amd64 builds modules; no binary of arm64 runs
# here. The script takes the newest release from the first suite below that has
# the series, and keeps it: REFRESH=1 looks for a newer one. It exits with 77 if
# this machine cannot get the series.
set -euo pipefail

# In the order of the search: the root's suite, and any that are added to it.
suites=("trixie trixie-backports" "forky" "sid")
# linux-headers depends on gcc and the rest of the tool chain.
tools=make,kmod,xz-utils,pahole,sparse,perl,python3-minimal
flavour=${FLAVOUR:-amd64}
arch=${flavour%%-*} # Debian's architecture
case $arch in
amd64)
	tools+=,libc6-dev
	# ROCm's runtime, newer than Debian 12's: the tests of gpualloc/rocm look at it.
	tools+=,libhsa-runtime64-1
	# libibverbs with FLUSH, which Debian 12's lacks: for tests of ibvfd.
	tools+=,libibverbs1,ibverbs-providers
	;;
arm64) tools+=,gcc-14-aarch64-linux-gnu ;; # the compiler that linux-headers of arm64 names
esac

fail() {
	echo "kernel/buildroot.sh: $*" >&2
	exit 1
}

unavailable() {
	echo "kernel/buildroot.sh: $*" >&2
	exit 77
}

[ $# -ge 1 ] || fail "usage: kernel/buildroot.sh SERIES [CMD ARGS...], such as 7.2"
series=$1
shift
[[ $series =~ ^[0-9]+\.[0-9]+$ ]] || fail "$series is not a kernel series, such as 7.2"
[ "$(dpkg --print-architecture)" = amd64 ] || unavailable "kernel $series is fetched for amd64 only"
[ "$(id -u)" = 0 ] || unavailable "kernel $series needs a build root of its own, and making one takes root"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
kernel=$build/kernels/$series
roots=$build/roots
root=$roots/$series
patches=kernel/patches/rxe-dmabuf
# shellcheck source-path=SCRIPTDIR/..
. "$top/testbed/archive.sh"

# Runs a command in the root. Its mounts are in a namespace that ends with it.
enter() {
	local script='
		root=$1 top=$2 build=$3 dir=$4
		shift 4
		mount --make-rprivate /
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		for d in "$top" "$build"; do
			mkdir -p "$root$d"
			mount --rbind "$d" "$root$d"
		done
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C.UTF-8 /bin/sh -c "cd \"\$1\" && shift && exec \"\$@\"" sh "$dir" "$@"'
	unshare --mount --pid --fork --kill-child -- \
		bash -euc "$script" bash "$root" "$top" "$build" "$PWD" "$@"
}

# following RELEASE VERSION prints the root's packages of that kernel. amd64's
# headers bring their compiler; others are unpacked into the root below.
following() {
	case $arch in
	amd64) echo "linux-headers-$1=$2" ;;
	arm64) echo "linux-kbuild-${1%"-$flavour"}=$2" ;;
	esac
}

made() {
	[ -z "${REFRESH:-}" ] && [ -s "$root/.inputs" ] && [ -s "$kernel/inputs" ] &&
		[ "$(cat "$root/.inputs")" = "$(inputs "$(cat "$kernel/release")" "$(cat "$kernel/version")")" ]
}

# The inputs of a root and an image.
inputs() {
	echo "layout 2" # 3 when this script leaves other files
	echo "$1 $2 $tools"
}

mkdir -p "$roots" "$build/kernels"
if made; then
	[ $# -eq 0 ] || enter "$@"
	exit
fi

exec 9>"$roots/.lock-$series"
flock -w 600 9 || fail "another run has held $roots/.lock-$series for 10 minutes"
if made; then # by the run that held the lock
	[ $# -eq 0 ] || enter "$@" 9>&-
	exit
fi
rm -rf --one-file-system "$roots/.stage-$series".* # of a run that was killed

for tool in mmdebstrap dpkg-deb depmod unshare; do
	command -v "$tool" >/dev/null ||
		fail "$tool is missing; install mmdebstrap, dpkg, kmod and util-linux"
done

why=$(archive_no_mounts)
[ -z "$why" ] ||
	unavailable "kernel $series needs a build root of its own, and entering one takes mounts: $why"

uri=$(archive_uri)
[ -n "$uri" ] || fail "apt on this machine has no Debian archive; run: apt-get update"

# Configures a private apt for suites, and one for the kernel's architecture.
private_apt() {
	host=$roots/.apt/${1// /+}
	# shellcheck disable=SC2086 # suites are meant to split
	archive_apt "$host" deb "$uri" $1
	apt=$host
	[ "$arch" != amd64 ] || return 0
	apt=$roots/.apt-$arch/${1// /+}
	# shellcheck disable=SC2086
	archive_apt "$apt" deb "$uri" $1
	echo "APT::Architecture \"$arch\"; APT::Architectures { \"$arch\"; };" >>"$apt/apt.conf"
}

# Updates the indexes of both; on failure, standard output has the reason.
private_update() {
	archive_update "$apt" && { [ "$apt" = "$host" ] || archive_update "$host"; }
}

# releases SERIES (an extended regexp) prints those on offer, oldest first.
releases() {
	APT_CONFIG=$apt/apt.conf apt-cache search --names-only \
		"^linux-headers-${1/./\\.}(\.[0-9]+)?\+deb[0-9]+-$flavour\$" |
		sed 's/^linux-headers-\([^ ]*\) .*/\1/' | sort -V
}
newest() { releases "$1" | tail -n 1; }

# Prints which later series the archive has.
say_later() {
	local later release
	for later in $(releases '[0-9]+.[0-9]+' | grep -o '^[0-9]*\.[0-9]*' | uniq | sed "0,/^$series\$/d"); do
		release=$(newest "$later")
		if [ -d "$top/$patches/$later" ]; then
			echo "kernel $series: ${release%%+*} is on offer too: KERNEL=$later"
		else
			echo "kernel $series: ${release%%+*} is on offer, and not supported yet: a new folder in $patches"
		fi
	done
}

release='' offered='' unread=''
for s in "${suites[@]}"; do
	private_apt "$s"
	if ! out=$(private_update); then
		echo "kernel $series: $s cannot be read: $out" >&2
		unread+=" $s"
		continue
	fi
	release=$(newest "$series")
	[ -z "$release" ] || break
	offered+=" $(newest "${series%%.*}.[0-9]+")"
done
[ -n "$release" ] ||
	unavailable "this machine's archive has no kernel $series in ${suites[*]} (newest there:${offered:- none}${unread:+; could not be read, see above:$unread}); a newer series is a new folder in $patches"
say_later
export APT_CONFIG=$apt/apt.conf
field() { apt-cache show --no-all-versions "$1" | sed -n "s/^$2: //p"; }
version=$(field "linux-headers-$release" Version)
want=$(inputs "$release" "$version")

if [ "$(cat "$root/.inputs" "$kernel/inputs" 2>/dev/null)" = "$want
$want" ]; then
	[ $# -eq 0 ] || enter "$@"
	exit
fi
echo "kernel $release ($version): fetching it and making its build root"

stage=$(mktemp -d "$roots/.stage-$series.XXXXXX")
cleanup() {
	rm -rf --one-file-system "$stage"
}
trap cleanup EXIT
chmod 755 "$stage"

# Puts the directory $1 in the place of $2.
replace() {
	if [ -e "$2" ]; then mv -T "$2" "$stage/old-$(basename "$(dirname "$2")")"; fi
	mv -T "$1" "$2"
}

APT_CONFIG=$host/apt.conf mmdebstrap --variant=apt --mode=root --keyring="$archive_keyring" \
	--skip=essential/unlink,cleanup/apt \
	--include="$tools,$(following "$release" "$version")" \
	"${s%% *}" "$stage/root" "$host/sources.list" >"$stage/log" 2>&1 || {
	tail -n 30 "$stage/log" >&2
	fail "mmdebstrap failed"
}
archive_record debs -o "$stage/root/.downloads.json" -for "root $series" -lists "$stage/root/var/lib/apt/lists" \
	"$stage"/root/var/cache/apt/archives/*.deb
rm -rf "$stage/root"/var/cache/apt/{archives/*.deb,*.bin} "$stage/root"/var/lib/apt/lists/*
# The build root keeps no name of the mirror that it was downloaded from.
: >"$stage/root/etc/apt/sources.list"

archive_dir "$stage/dl"
(cd "$stage/dl" && apt-get -qq download \
	"linux-base-$release=$version" "linux-binary-$release=$version" \
	"linux-modules-$release=$version" "linux-source-$series=$version")
deb() { echo "$stage/dl/$1_${version//:/%3a}_$2.deb"; }
mkdir -p "$stage/kernel/image/boot" "$stage/kernel/headers"
for p in base binary modules; do
	dpkg-deb -x "$(deb "linux-$p-$release" "$arch")" "$stage/kernel/image"
done
if [ "$arch" != amd64 ]; then
	(cd "$stage/dl" && apt-get -qq download "linux-headers-$release=$version" "linux-headers-${release%"-$flavour"}-common=$version")
	dpkg-deb -x "$(deb "linux-headers-$release" "$arch")" "$stage/root"
	dpkg-deb -x "$(deb "linux-headers-${release%"-$flavour"}-common" all)" "$stage/root"
fi
archive_record debs -o "$stage/kernel/.downloads.json" -for "kernel $series" -lists "$apt/lists" "$stage"/dl/*.deb
image=$stage/kernel/image
# Links in the places where older kernels have these files.
ln -s usr/lib "$image/lib"
ln -s "../lib/modules/$release/vmlinuz" "$image/boot/vmlinuz-$release"
ln -s "../lib/modules/$release/config" "$image/boot/config-$release"
depmod -b "$image" "$release"
dpkg-deb --fsys-tarfile "$(deb "linux-source-$series" all)" |
	tar -xOf - "./usr/src/linux-source-$series.tar.xz" >"$stage/kernel/source.tar.xz"
ln -s "../../../roots/$series/usr/src/linux-headers-$release" "$stage/kernel/headers/kdir"
echo "$release" >"$stage/kernel/release"
echo "$version" >"$stage/kernel/version"
echo "$want" >"$stage/kernel/inputs"
echo "$want" >"$stage/root/.inputs"

replace "$stage/root" "$root"
replace "$stage/kernel" "$kernel"
echo "kernel $release: in $kernel, its build root in $root"
[ $# -eq 0 ] || enter "$@"
