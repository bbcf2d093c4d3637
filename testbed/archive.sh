# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Debian's newer suites, from the archive that this machine's own apt is configured
# with: for what Debian 12 does not have. Sourced by kernel/buildroot.sh and
# testbed/emulator.sh.

archive_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Debian's archive as this machine knows it, without its security half, which
# has no backports. Empty: apt knows none.
archive_uri() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# archive_apt DIR URI SUITE...: an apt of its own, whose configuration is
# DIR/apt.conf and whose sources are DIR/sources.list.
archive_apt() {
	local dir=$1 uri=$2 s
	shift 2
	mkdir -p "$dir"/{lists/partial,cache/archives/partial,etc/apt.conf.d,etc/preferences.d}
	: >"$dir/status"
	for s; do
		echo "deb [signed-by=$archive_keyring] $uri $s main"
	done >"$dir/sources.list"
	# A mirror may lag behind the date in its Release file.
	cat >"$dir/apt.conf" <<-CONF
		Dir::State "$dir";
		Dir::State::lists "lists";
		Dir::State::status "$dir/status";
		Dir::Cache "$dir/cache";
		Dir::Etc "$dir/etc";
		Dir::Etc::sourcelist "$dir/sources.list";
		Acquire::Check-Valid-Until "false";
		Acquire::Languages "none";
		APT::Sandbox::User "root";
	CONF
	apt-config dump | grep -i '^Acquire::https\?::Proxy' >>"$dir/apt.conf" || true
}

# Why mounts, which mmdebstrap makes, are not possible here; root of a container
# may have no right to them. Empty: they are.
archive_no_mounts() {
	local why
	why=$(unshare --mount --pid --fork true 2>&1) || echo "${why:-unshare failed}"
}
