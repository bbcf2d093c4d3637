#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the DRA driver's tests that need a real kernel, in a virtual machine of the test bed. `make dra-vm` calls it.
#
#   deploy/dra/vm.sh DIR    DIR has the tests' programs, and the hook's program
set -eu

cd "$(dirname "$0")"
GPURDMA_DRA_MEMLOCK=$1/dra-p2p-memlock
export GPURDMA_DRA_MEMLOCK
mkdir -p /sys/fs/cgroup
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup # for the runtimes of containers
status=0
for p in uevent memlock proving; do
	(cd $p && "$1/$p.test" -test.v -test.run "${2:-.}") || status=1
done
exit $status
