# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# The functions about apt that all of set-up shares. They find Debian's archive, and make an
# apt of its own for Debian's newer suites, which have packages that Debian 12 lacks. The
# scripts of testbed/, kernel/ and deploy/ that download packages source this file.

archive_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# archive_uri prints the URI of Debian's archive: DEBIAN_ARCHIVE, or the archive of this
# machine's own apt, but not its security half, which has no backports. It prints nothing
# if apt knows no archive.
archive_uri() {
	if [ -n "${DEBIAN_ARCHIVE:-}" ]; then
		echo "$DEBIAN_ARCHIVE"
		return
	fi
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# archive_dated URI succeeds if the URI's path has a date, as 20250520T000000Z or 20250520.
# Such an archive serves the packages of that date and never changes, so that its indexes
# are older than they say that they may be.
archive_dated() {
	local path=${1#*://}
	case $path in
	*/*) path=/${path#*/} ;;
	*) return 1 ;; # a host alone
	esac
	printf '%s\n' "$path" | grep -Eq \
		'/(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]Z)?(/|$)'
}

# archive_sources TYPE URI SUITE... prints lines of a sources.list; TYPE is deb or deb-src.
# Only this function decides whether apt takes an index that is out of date.
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

# archive_apt DIR TYPE URI SUITE... makes an apt of its own, whose configuration is
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

# archive_update DIR fetches all indexes of archive_apt's apt, as the archive has them now.
# If that fails, it prints the reason and what to do on standard output.
archive_update() {
	local said
	if said=$(APT_CONFIG=$1/apt.conf apt-get -qq update --error-on=any 2>&1); then
		return
	fi
	printf '%s\n' "$said"
	archive_advice "$said"
	return 1
}

# archive_advice TEXT prints what to do if TEXT, apt's messages, says that apt refused an
# index for its date. Otherwise it prints nothing.
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

# archive_dir DIR makes a directory for apt's downloads. Root's apt downloads as the user
# _apt. If _apt cannot reach the directory, apt prints a warning and downloads as root.
archive_dir() {
	mkdir -p "$1"
	[ "$(id -u)" -ne 0 ] || chown _apt "$1" || true
}

# archive_find APTS ARCHIVE PATTERN PACKAGE SUITE... finds the newest version of a source
# package that matches PATTERN, in the first suite that has one; callers name the oldest
# suite first. source_version is then the version, and source_apt the directory of an apt
# that can fetch it. If no suite has one, source_offered has the versions that they do have.
# Not every mirror has every suite: archive_find names those that it cannot read on standard
# error, and passes them over.
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

# archive_tarball PACKAGE DIR downloads the upstream tarball of the source package that
# archive_find has found, without Debian's own additions, which a mirror may lack. The hash
# of each file is in the signed index.
archive_tarball() (
	archive_dir "$2"
	cd "$2"
	APT_CONFIG=$source_apt/apt.conf apt-get --download-only --tar-only source "$1=$source_version"
)

# archive_no_mounts prints why mounts, which mmdebstrap makes, are not possible here: root of
# a container may have no right to them. It prints nothing if they are possible.
archive_no_mounts() {
	local why
	why=$(unshare --mount --pid --fork true 2>&1) || echo "${why:-unshare failed}"
}

# archive_record ARGUMENT... writes the list of downloaded packages beside them. It runs the
# command downloads of the checkout $top.
archive_record() {
	# shellcheck disable=SC2154
	(cd "$top/testbed" && CGO_ENABLED=0 go run -trimpath ./cmd/downloads "$@")
}
