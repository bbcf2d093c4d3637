// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/linux/dma-buf.h.

// abiSync is struct dma_buf_sync.
type abiSync struct {
	_     structs.HostLayout
	Flags uint64
}

// abiExportSyncFile is struct dma_buf_export_sync_file.
type abiExportSyncFile struct {
	_     structs.HostLayout
	Flags uint32
	FD    int32
}

// abiImportSyncFile is struct dma_buf_import_sync_file.
type abiImportSyncFile struct {
	_     structs.HostLayout
	Flags uint32
	FD    int32
}

const (
	syncRead  = 1 << 0 // DMA_BUF_SYNC_READ
	syncWrite = 2 << 0 // DMA_BUF_SYNC_WRITE
	syncStart = 0 << 2 // DMA_BUF_SYNC_START
	syncEnd   = 1 << 2 // DMA_BUF_SYNC_END

	nameLen = 32 // DMA_BUF_NAME_LEN, with the terminating zero

	dmaBufBase = 'b' // DMA_BUF_BASE
)

var (
	reqSync = ioctl.IOW(dmaBufBase, 0, uint32(unsafe.Sizeof(abiSync{}))) // DMA_BUF_IOCTL_SYNC
	// DMA_BUF_SET_NAME_B: the size in the number is that of a 64-bit pointer
	// on every architecture; the argument is the string's address itself.
	reqSetName        = ioctl.IOW(dmaBufBase, 1, 8)
	reqExportSyncFile = ioctl.IOWR(dmaBufBase, 2, uint32(unsafe.Sizeof(abiExportSyncFile{}))) // DMA_BUF_IOCTL_EXPORT_SYNC_FILE
	reqImportSyncFile = ioctl.IOW(dmaBufBase, 3, uint32(unsafe.Sizeof(abiImportSyncFile{})))  // DMA_BUF_IOCTL_IMPORT_SYNC_FILE
)

func syncAccess(t ioctl.Transport, fd int, flags uint64) error {
	return t.Ioctl(fd, reqSync, unsafe.Pointer(&abiSync{Flags: flags}))
}

// setName passes name, which must hold no zero byte.
func setName(t ioctl.Transport, fd int, name string) error {
	arg := append([]byte(name), 0)
	return t.Ioctl(fd, reqSetName, unsafe.Pointer(&arg[0]))
}

func exportSyncFile(t ioctl.Transport, fd int, flags uint32) (int, error) {
	arg := abiExportSyncFile{Flags: flags, FD: -1}
	err := t.Ioctl(fd, reqExportSyncFile, unsafe.Pointer(&arg))
	return int(arg.FD), err
}

func importSyncFile(t ioctl.Transport, fd int, flags uint32, fence int) error {
	arg := abiImportSyncFile{Flags: flags, FD: int32(fence)}
	return t.Ioctl(fd, reqImportSyncFile, unsafe.Pointer(&arg))
}
