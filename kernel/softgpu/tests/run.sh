#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs inside the virtual machine that tests/machine.json describes: loads the
# modules once for each personality, tests the GPU behind the switch, and
# unloads them again.
#
#   run.sh MODULES TEST-PROGRAM [TEST...]
set -euo pipefail

modules=$1
program=$2
shift 2

# QEMU's topology tells the devices apart: the edu below the switch of the first
# GPU is the near one.
mapfile -t edus < <(grep -l 0x11e8 /sys/bus/pci/devices/*/device | xargs -n1 dirname)
gpu=$(dirname "$(grep -l 0x1110 /sys/bus/pci/devices/*/device | head -n1)")
switch=$(dirname "$(dirname "$(realpath "$gpu")")")
near= far=
for edu in "${edus[@]}"; do
	case $(realpath "$edu") in
	"$switch"/*) near=$(basename "$edu") ;;
	*) far=$(basename "$edu") ;;
	esac
done
[ -n "$near" ] && [ -n "$far" ] || { echo "run.sh: not the machine of tests/machine.json" >&2; exit 1; }

# A kernel series may skip the tests of what it lacks, and no others.
case $GPURDMA_KERNEL in
6.12) missing="demotion rdma-two rdma-dynamic rdma-moved-in-use rdma-prefetch" ;;
*)
	missing=
	export SOFTGPU_HAS_P2PDMA=1
	;;
esac

# In this series the core maps in the attach if the importer takes part in
# moves and the exporter does not.
case $GPURDMA_KERNEL in
6.12) export SOFTGPU_MAPS_IN_ATTACH=1 ;;
esac

insmod "$modules/testimporter.ko"
status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
try() { "$program" "$(basename "$gpu")" "$near" "$far" "$@" | tee -a "$log" || status=1; }
for personality in amdgpu xe i915; do
	# vram-only runs as xe; hidden runs below, with VRAM beyond the BAR.
	case $personality in
	xe) SOFTGPU_MAY_SKIP="$missing hidden" ;;
	*) SOFTGPU_MAY_SKIP="$missing hidden vram-only" ;;
	esac
	export SOFTGPU_MAY_SKIP
	insmod "$modules/softgpu.ko" personality=$personality
	echo "== $personality"
	try "$@"
	rmmod softgpu
done

# VRAM larger than the BAR.
export SOFTGPU_MAY_SKIP=
insmod "$modules/softgpu.ko" personality=amdgpu vram_mb=128
echo "== amdgpu with more VRAM than BAR"
try hidden several migration
rmmod softgpu

rmmod testimporter

# New devices of rdma_rxe start with the module's parameters.
if [ $# -eq 0 ]; then
	echo "== rdma_rxe's own parameters"
	ip link set dummy0 up
	for kind in pinned revocable dynamic; do
		for link in /sys/class/infiniband/*; do rdma link delete "$(basename "$link")"; done
		modprobe -r rdma_rxe
		modprobe rdma_rxe importer=$kind peer2peer=N
		rdma link add rxe-soft type rxe netdev dummy0
		insmod "$modules/softgpu.ko" personality=amdgpu
		try rdma-parameter
		rmmod softgpu
	done
	if echo strange 2>/dev/null >/sys/module/rdma_rxe/parameters/importer; then
		echo "FAIL rdma_rxe takes any importer"
		status=1
	fi
fi

# Each vmap that fails must be one that a test provoked.
provoked=$(grep -c '^provoked: a vmap' "$log") || true
warned=$(dmesg | grep -c 'WARNING: .* dma_buf_vmap+') || true
if [ "$warned" -ne "$provoked" ]; then
	echo "FAIL $warned times a dma-buf's vmap failed, $provoked of them on purpose"
	status=1
fi
exit $status
