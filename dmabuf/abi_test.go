// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/abicheck"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

var (
	abiSyncStructs = []abicheck.Struct{
		{C: "dma_buf_sync", Go: abiSync{}, Fields: []string{"flags"}},
		{C: "dma_buf_export_sync_file", Go: abiExportSyncFile{}, Fields: []string{"flags", "fd"}},
		{C: "dma_buf_import_sync_file", Go: abiImportSyncFile{}, Fields: []string{"flags", "fd"}},
		{C: "sync_file_info", Go: abiSyncFileInfo{}, Fields: []string{"name", "status", "flags", "num_fences", "pad", "sync_fence_info"}},
	}
	abiExporterStructs = []abicheck.Struct{
		{C: "udmabuf_create", Go: abiUDMABufCreate{}, Fields: []string{"memfd", "flags", "offset", "size"}},
		{C: "udmabuf_create_item", Go: abiUDMABufItem{}, Fields: []string{"memfd", "__pad", "offset", "size"}},
		{C: "udmabuf_create_list", Go: abiUDMABufList{}, Fields: []string{"flags", "count"}},
		{C: "dma_heap_allocation_data", Go: abiHeapAlloc{}, Fields: []string{"len", "fd", "fd_flags", "heap_flags"}},
	}
)

func TestHeaders(t *testing.T) {
	// Of Linux 6.0 and newer.
	headers := abicheck.Headers{
		Files:   []string{"linux/dma-buf.h", "linux/sync_file.h", "linux/udmabuf.h", "linux/dma-heap.h"},
		Package: "linux-libc-dev",
	}
	numbers := []abicheck.Number{
		{C: "DMA_BUF_IOCTL_SYNC", Go: uint64(reqSync)},
		{C: "DMA_BUF_SET_NAME_B", Go: uint64(reqSetName)},
		{C: "DMA_BUF_IOCTL_EXPORT_SYNC_FILE", Go: uint64(reqExportSyncFile)},
		{C: "DMA_BUF_IOCTL_IMPORT_SYNC_FILE", Go: uint64(reqImportSyncFile)},
		{C: "DMA_BUF_SYNC_READ", Go: syncRead},
		{C: "DMA_BUF_SYNC_WRITE", Go: syncWrite},
		{C: "DMA_BUF_SYNC_RW", Go: syncRead | syncWrite},
		{C: "DMA_BUF_SYNC_START", Go: syncStart},
		{C: "DMA_BUF_SYNC_END", Go: syncEnd},
		{C: "DMA_BUF_NAME_LEN", Go: nameLen},
		{C: "SYNC_IOC_FILE_INFO", Go: uint64(reqFileInfo)},
		{C: "UDMABUF_CREATE", Go: uint64(reqUDMABufCreate)},
		{C: "UDMABUF_CREATE_LIST", Go: uint64(reqUDMABufCreateList)},
		{C: "UDMABUF_FLAGS_CLOEXEC", Go: udmabufCloexec},
		{C: "DMA_HEAP_IOCTL_ALLOC", Go: uint64(reqHeapAlloc)},
	}
	headers.Compare(t, append(abiSyncStructs[:4:4], abiExporterStructs...), numbers)
}

// Golden request numbers, for machines without the headers.
func TestRequestNumbers(t *testing.T) {
	for name, c := range map[string][2]uint32{
		"DMA_BUF_IOCTL_SYNC":             {reqSync, 0x40086200},
		"DMA_BUF_SET_NAME_B":             {reqSetName, 0x40086201},
		"DMA_BUF_IOCTL_EXPORT_SYNC_FILE": {reqExportSyncFile, 0xc0086202},
		"DMA_BUF_IOCTL_IMPORT_SYNC_FILE": {reqImportSyncFile, 0x40086203},
		"SYNC_IOC_FILE_INFO":             {reqFileInfo, 0xc0383e04},
		"UDMABUF_CREATE":                 {reqUDMABufCreate, 0x40187542},
		"UDMABUF_CREATE_LIST":            {reqUDMABufCreateList, 0x40087543},
		"DMA_HEAP_IOCTL_ALLOC":           {reqHeapAlloc, 0xc0184800},
	} {
		if c[0] != c[1] {
			t.Errorf("%s = %#x, want %#x", name, c[0], c[1])
		}
	}
}

func TestVMLayoutOfThisKernel(t *testing.T) {
	testenv.VM(t)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	if err := abicheck.BTF(spec, abiSyncStructs...); err != nil {
		t.Error(err)
	}
	if !testenv.AtLeast(t, "6.12") {
		return // built without udmabuf and heaps
	}
	structs := slices.DeleteFunc(slices.Clone(abiExporterStructs), func(s abicheck.Struct) bool {
		return s.C == "dma_heap_allocation_data" && testenv.Lacks("dma-heap")
	})
	if err := abicheck.BTF(spec, structs...); err != nil {
		t.Error(err)
	}
}
