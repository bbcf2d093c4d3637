# SPDX-License-Identifier: GPL-2.0
#
# The builds of kernel modules source this: with SPARSE=1, sparse checks what
# they compile. Needs fail, and top, build, series, kernel and release.

# Make's arguments.
sparse_args=()
if [ -n "${SPARSE:-}" ]; then
	sparse_args=(C=1 CHECK="sparse -Wshadow")
	unset MAKEFLAGS # make -s and V=1 do not print which files sparse checks
	# Debian's headers of Linux 7 lack the script that looks for sparse. The
	# makefile needs it to find sparse.
	valid=scripts/checker-valid.sh
	for headers in "$build/roots/$series/usr/src/linux-headers-"*-common; do
		[ -d "$headers" ] || continue # no root: an older kernel
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
