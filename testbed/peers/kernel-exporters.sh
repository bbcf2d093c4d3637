#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The error paths of a registration, on an exporter that fails in the call that its
# mode names (kernel/testexporter). If a released buffer still has a pin, a mapping
# or a CPU access, it warns in the kernel's log, which fails the run. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

modprobe testexporter || fail "testexporter is missing; build it: make kernel KERNEL=$series"

# rxe reads and writes memory behind an iomem address by accessors; that of 6.1 refuses it.
case $series in
6.1) iomem='iomem EOPNOTSUPP' ;;
*)
	iomem=''
	out=$(bounded 180 dmabuf-mr verify --route ioctl --exporter test:iomem) || fail "test:iomem: $out"
	echo "ok iomem"
	;;
esac

# rxe reaches a buffer without struct pages by vmap.
out=$(bounded 180 dmabuf-mr verify --route ioctl --exporter test:no-pages) || fail "test:no-pages: $out"
echo "ok no-pages"

# The program gets the exporter's own errors unchanged; a refusal of rxe's own
# is EOPNOTSUPP.
while read -r mode errno; do
	for _ in 1 2 3; do
		out=$(bounded 180 dmabuf-mr verify --route ioctl --exporter "test:$mode") || true
		[[ $out == *'"stage":"register","errno":"'"$errno"'"'* ]] ||
			fail "test:$mode: not $errno: $out"
	done
	echo "ok $mode: $errno"
done < <(sed /^$/d <<END
no-vmap EOPNOTSUPP
$iomem
attach EPERM
pin EBUSY
map ENXIO
END
)

# The exporter refuses the program's own CPU access as well, so that the program
# compares no bytes; this checks the registration only.
out=$(bounded 180 dmabuf-mr bench --count 1 --route ioctl --exporter test:begin-cpu) || true
[[ $out == *'"stage":"register","errno":"EIO"'* ]] || fail "test:begin-cpu: not EIO: $out"
echo "ok begin-cpu: EIO"

# In this mode the exporter works, and each MR gives back its pin and its mapping.
out=$(bounded 300 dmabuf-mr selftest --exporter test:ok) || fail "test:ok: $out"
echo "ok $(tail -n 1 <<<"$out")"

# No buffer is left, so that the module can be unloaded.
rmmod testexporter || fail "testexporter is still in use"
pass "faulty exporters on kernel $series"
