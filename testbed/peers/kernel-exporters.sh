#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The error paths of a registration, on an exporter that fails where it is told
# to (kernel/testexporter). It warns in the kernel's log, which fails the run,
# when something was not given back. Runs in the guest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

modprobe testexporter || fail "testexporter is missing; build it: make kernel KERNEL=$series"

# Memory behind an iomem address goes through accessors, but not in the rxe of 6.1.
case $series in
6.1) iomem='iomem EOPNOTSUPP' ;;
*)
	iomem=''
	out=$(bounded 180 dmabuf-mr verify --route ioctl --exporter test:iomem) || fail "test:iomem: $out"
	echo "ok iomem"
	;;
esac

# What has no pages is reached by vmap all the same.
out=$(bounded 180 dmabuf-mr verify --route ioctl --exporter test:no-pages) || fail "test:no-pages: $out"
echo "ok no-pages"

# The exporter's own refusals come through as they are; what rxe refuses itself
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

# The CPU's access is refused to the program as well, so that it never comes
# to a comparison; the registration is what counts.
out=$(bounded 180 dmabuf-mr bench --count 1 --route ioctl --exporter test:begin-cpu) || true
[[ $out == *'"stage":"register","errno":"EIO"'* ]] || fail "test:begin-cpu: not EIO: $out"
echo "ok begin-cpu: EIO"

# The exporter works, and a pin and a mapping for each MR are given back.
out=$(bounded 300 dmabuf-mr selftest --exporter test:ok) || fail "test:ok: $out"
echo "ok $(tail -n 1 <<<"$out")"

# All buffers are gone: the module is free.
rmmod testexporter || fail "testexporter is still in use"
pass "faulty exporters on kernel $series"
