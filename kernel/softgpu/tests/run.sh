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

# The machine's devices by QEMU's topology: the edu behind the same switch as
# the first GPU shares two bridges with it.
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

insmod "$modules/testimporter.ko"
status=0
for personality in amdgpu xe i915; do
	insmod "$modules/softgpu.ko" personality=$personality
	echo "== $personality"
	"$program" "$(basename "$gpu")" "$near" "$far" "$@" || status=1
	rmmod softgpu
done

# VRAM larger than the BAR.
insmod "$modules/softgpu.ko" personality=amdgpu vram_mb=128
echo "== amdgpu with more VRAM than BAR"
"$program" "$(basename "$gpu")" "$near" "$far" hidden several migration || status=1
rmmod softgpu

rmmod testimporter
exit $status
