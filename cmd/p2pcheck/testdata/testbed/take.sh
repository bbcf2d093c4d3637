#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Takes the snapshots beside it anew, in the test bed: what p2pcheck looks at
# has changed, and it refuses older ones. Then, at the top,
# `go test ./cmd/p2pcheck -run TestSnapshotsOfTheTestbed -update`, and read what
# has become of the reports. Of a machine of two nodes it is the first.
#
#   cmd/p2pcheck/testdata/testbed/take.sh [MACHINE...]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../../../.." && pwd)
make -s -C "$top" vm-ready KERNEL=7.2
[ $# -gt 0 ] || set -- bare default fabric fabric+EPYC+iommu hostbridges nested nested+Nehalem+iommu \
	pair rootports switch switch-acs two-nics
for machine; do
	echo "$machine"
	"$top/build/bin/testbed" run -kernel 7.2 -patched-rxe -machine "$machine" -- sh -euc '
		modprobe softgpu personality=amdgpu,xe,i915,amdgpu
		p2pcheck snapshot /tmp/s.tar.gz >&2
		base64 /tmp/s.tar.gz' | base64 -d >"$here/.$machine.tar.gz"
	mv "$here/.$machine.tar.gz" "$here/$machine.tar.gz"
done
