# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Buffers and ranges for the C program, one set of options a line. To be
# sourced after common.sh.

# Debian's kernels of arm64 have no dma-heaps.
exporters() {
	case $series-$(uname -m) in
	6.1-*) echo vgem virtio_gpu ;;
	*-aarch64) echo vgem virtio_gpu udmabuf ;;
	*) echo vgem virtio_gpu udmabuf heap:system ;;
	esac
}

shapes() {
	local exporter page
	page=$(getconf PAGESIZE)
	for exporter in $(exporters); do
		echo "--exporter $exporter --size 1"
		echo "--exporter $exporter --size $((page + 1))"
		echo "--exporter $exporter --size 1m"
		echo "--exporter $exporter --size 1m --offset $page --length $((2 * page)) --iova 0x10000000000"
		echo "--exporter $exporter --size 1m --offset $((page - 1)) --length 2 --iova $((page - 1))"
		echo "--exporter $exporter --size 1m --offset 1048575 --length 1"
		echo "--exporter $exporter --size 3m --offset 12345 --length 2222222"
		echo "--exporter $exporter --size 16m"
	done
}
