// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/linux/sync_file.h.

// abiSyncFileInfo is struct sync_file_info.
type abiSyncFileInfo struct {
	_         structs.HostLayout
	Name      [32]byte
	Status    int32
	Flags     uint32
	NumFences uint32
	Pad       uint32
	FenceInfo uint64 // sync_fence_info: address of an array, none asked for here
}

const syncMagic = '>' // SYNC_IOC_MAGIC

var reqFileInfo = ioctl.IOWR(syncMagic, 4, uint32(unsafe.Sizeof(abiSyncFileInfo{}))) // SYNC_IOC_FILE_INFO

func syncFileInfo(t ioctl.Transport, fd int) (abiSyncFileInfo, error) {
	var arg abiSyncFileInfo
	err := t.Ioctl(fd, reqFileInfo, unsafe.Pointer(&arg))
	return arg, err
}
