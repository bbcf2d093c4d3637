# SPDX-License-Identifier: GPL-2.0
#
# Sourced by the scripts that build a whole kernel from Debian's source:
# unpacking it, and a configuration from a default and a fragment.

# unpack ARCHIVE VERSION-FILE DIR: nothing is done where that version is there.
unpack() {
	[ "$(cat "$3/.debian-version" 2>/dev/null)" != "$(cat "$2")" ] || return 0
	echo "unpack Debian's source $(cat "$2")"
	rm -rf "$3"
	mkdir -p "$3"
	tar -xJf "$1" -C "$3" --strip-components=1
	cp "$2" "$3/.debian-version"
}

# configure DIR FRAGMENT DEFAULT MAKE...: fails if a line of the fragment is not
# in the result, because the kernel's own rules have overruled it.
configure() {
	local dir=$1 fragment=$2 default=$3 lost
	shift 3
	"$@" "$default"
	(cd "$dir" && KCONFIG_CONFIG=.config scripts/kconfig/merge_config.sh -m .config "$fragment" >/dev/null)
	"$@" olddefconfig
	lost=$(grep -E '^(CONFIG_|# CONFIG_.* is not set$)' "$fragment" |
		while read -r line; do
			case $line in
			'# '*) option=${line#'# '} option=${option%% *}
				! grep -q "^$option=" "$dir/.config" || echo "$line" ;;
			*) grep -qxF "$line" "$dir/.config" || echo "$line" ;;
			esac
		done)
	[ -z "$lost" ] || fail "the configuration has not:
$lost"
}
