# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Buffers and ranges for the C program, one set of options a line. To be
# sourced after common.sh.

exporters() {
	case $series in
	6.1) echo vgem virtio_gpu ;;
	*) echo vgem virtio_gpu udmabuf heap:system ;;
	esac
}

shapes() {
	local exporter
	for exporter in $(exporters); do
		echo "--exporter $exporter --size 1"
		echo "--exporter $exporter --size 4097"
		echo "--exporter $exporter --size 1m"
		echo "--exporter $exporter --size 1m --offset 4096 --length 8192 --iova 0x10000000000"
		echo "--exporter $exporter --size 1m --offset 4095 --length 2 --iova 0xfff"
		echo "--exporter $exporter --size 1m --offset 1048575 --length 1"
		echo "--exporter $exporter --size 3m --offset 12345 --length 2222222"
		echo "--exporter $exporter --size 16m"
	done
}
