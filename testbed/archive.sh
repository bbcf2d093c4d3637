# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# Debian's newer suites, for what Debian 12 does not have: from which archive, and an
# apt of its own for them. And what all of set-up shares about apt. Sourced by
# testbed/setup.sh, testbed/emulator.sh, testbed/libfabric.sh, kernel/buildroot.sh and
# kernel/rxe-provider.sh.

archive_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Debian's archive: DEBIAN_ARCHIVE, or the one that this machine's own apt is configured
# with, without its security half, which has no backports. Empty: apt knows none.
archive_uri() {
	if [ -n "${DEBIAN_ARCHIVE:-}" ]; then
		echo "$DEBIAN_ARCHIVE"
		return
	fi
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# archive_dated URI: is it an archive as it was at a date, which its path then has as
# 20250520T000000Z or 20250520? What it serves never changes, so that its indexes are
# older than they say that they may be.
archive_dated() {
	local path=${1#*://}
	case $path in
	*/*) path=/${path#*/} ;;
	*) return 1 ;; # a host alone
	esac
	printf '%s\n' "$path" | grep -Eq \
		'/(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]Z)?(/|$)'
}

# archive_sources TYPE URI SUITE...: lines of a sources.list; TYPE is deb or deb-src.
# This alone decides whether an index that is out of date is taken.
archive_sources() {
	local type=$1 uri=$2 options="signed-by=$archive_keyring" suite
	shift 2
	if archive_dated "$uri"; then
		options="$options check-valid-until=no"
	fi
	for suite; do
		echo "$type [$options] $uri $suite main"
	done
}

# archive_apt DIR TYPE URI SUITE...: an apt of its own, whose configuration is
# DIR/apt.conf and whose sources are DIR/sources.list.
archive_apt() {
	local dir=$1
	shift
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/etc/apt.conf.d" "$dir/etc/preferences.d"
	: >"$dir/status"
	archive_sources "$@" >"$dir/sources.list"
	cat >"$dir/apt.conf" <<-CONF
		Dir::State "$dir";
		Dir::State::lists "lists";
		Dir::State::status "$dir/status";
		Dir::Cache "$dir/cache";
		Dir::Etc "$dir/etc";
		Dir::Etc::sourcelist "$dir/sources.list";
		Acquire::Languages "none";
	CONF
	apt-config dump | grep -i '^Acquire::https\?::Proxy' >>"$dir/apt.conf" || true
}

# archive_update DIR: the indexes of archive_apt's apt, all of them and as the archive
# has them now. If that fails, standard output has the reason and what to do.
archive_update() {
	local said
	if said=$(APT_CONFIG=$1/apt.conf apt-get -qq update --error-on=any 2>&1); then
		return
	fi
	printf '%s\n' "$said"
	archive_advice "$said"
	return 1
}

# archive_advice TEXT: what to do about an index that apt has refused for its date, as
# TEXT says. Empty: it has not.
archive_advice() {
	case $1 in
	*'is expired (invalid since'*)
		echo "the archive's index is out of date: the mirror is behind, or this machine's clock is ahead." \
			"Try again later, or use another mirror: in apt's own sources, or for Debian's newer suites as" \
			"DEBIAN_ARCHIVE=URL. An old index is taken only from an archive that has a date in its URL"
		;;
	*'is not valid yet (invalid for'*)
		echo "the archive's index is of a later time than now: set this machine's clock, which says $(date -u)"
		;;
	esac
}

# archive_dir DIR: a directory that apt downloads into. Root's apt downloads as the user
# _apt, if that may write there; if it cannot get there, apt says so and does it as root.
archive_dir() {
	mkdir -p "$1"
	[ "$(id -u)" -ne 0 ] || chown _apt "$1" || true
}

# archive_find APTS ARCHIVE PATTERN PACKAGE SUITE...: the newest version of a source package
# that matches PATTERN, in the first of the suites that has one; oldest suite first. Its
# version is left in source_version, and in source_apt the directory of an apt that can
# fetch it. If it fails, source_offered has the versions that there are. Not every mirror
# has every suite: those that cannot be read are named on standard error, and passed over.
archive_find() {
	local apts=$1 archive=$2 pattern=$3 package=$4 suite versions why
	shift 4
	source_version='' source_offered=''
	for suite; do
		source_apt=$apts/$suite
		archive_apt "$source_apt" deb-src "$archive" "$suite"
		if ! why=$(archive_update "$source_apt"); then
			echo "$suite cannot be read: $why" >&2
			continue
		fi
		versions=$(APT_CONFIG=$source_apt/apt.conf apt-cache showsrc --only-source "$package" 2>/dev/null |
			sed -n 's/^Version: //p' | sort -Vu)
		source_version=$(printf '%s\n' "$versions" | grep -e "$pattern" | tail -n 1) || true
		[ -z "$source_version" ] || return 0
		source_offered="$source_offered $(printf '%s\n' "$versions" | xargs)"
	done
	return 1
}

# archive_tarball PACKAGE DIR: downloads the upstream tarball of what archive_find has found.
# Debian's own additions are not asked for, and a mirror may lack them; the hash of each
# file is in the signed index.
archive_tarball() (
	archive_dir "$2"
	cd "$2"
	APT_CONFIG=$source_apt/apt.conf apt-get --download-only --tar-only source "$1=$source_version"
)

# Why mounts, which mmdebstrap makes, are not possible here; root of a container
# may have no right to them. Empty: they are.
archive_no_mounts() {
	local why
	why=$(unshare --mount --pid --fork true 2>&1) || echo "${why:-unshare failed}"
}

# archive_record ARGUMENT...: leaves the list of what was downloaded beside it: the
# command downloads, of the checkout $top.
archive_record() {
	# shellcheck disable=SC2154
	(cd "$top/testbed" && CGO_ENABLED=0 go run -trimpath ./cmd/downloads "$@")
}
