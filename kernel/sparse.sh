# SPDX-License-Identifier: GPL-2.0
#
# Sourced by the builds of kernel modules: sparse over what they compile, with
# SPARSE=1. Needs fail, and top, build, series, kernel and release.

# Make's arguments.
sparse_args=()
if [ -n "${SPARSE:-}" ]; then
	sparse_args=(C=1 CHECK="sparse -Wshadow")
	unset MAKEFLAGS # a make without words, or with all, does not say what it checks
	# Debian's headers of Linux 7 lack the script that looks for sparse, and with
	# that the makefile finds none.
	valid=scripts/checker-valid.sh
	for headers in "$build/roots/$series/usr/src/linux-headers-"*-common; do
		[ -d "$headers" ] || continue # no root: the headers are an older kernel's
		sparse_args=(C=1 CHECK="sparse -Wshadow -include $top/kernel/sparse.h")
		[ -e "$headers/$valid" ] ||
			tar -xf "$kernel/source.tar.xz" -C "$headers" --strip-components=1 --wildcards "*/$valid" ||
			fail "$valid is not in the source of kernel $release"
	done
fi

# sparse_found LOG DIRECTORY prints sparse's reports on the files in a directory, or why
# sparse did not run, and is true if it has printed something. sparse also reports on the
# kernel's own headers, which are left out. The output may go into LOG.
sparse_found() {
	local found
	[ -n "${SPARSE:-}" ] || return 1
	if ! grep -q '^ *CHECK ' "$1" || grep -q 'C=1 specified, but' "$1"; then
		echo "sparse is missing, or too old for kernel $release"
		return
	fi
	found=$(grep -E "^($2/)?(${sparse_files:-[a-z0-9_]+\.[ch]}):[0-9]+:[0-9]+: (warning|error)" "$1") || return 1
	printf '%s\n' "$found"
}
