// SPDX-License-Identifier: Apache-2.0

package levelzero_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc/levelzero"
)

// The GPUs of this machine.
func ExampleDevices() {
	devices, err := levelzero.Devices()
	if err != nil {
		fmt.Println("no Level Zero here:", err)
		return
	}
	for _, d := range devices {
		fmt.Println(d, d.DMABuf)
	}
}

// Export memory that the program has already, and find the MR for each dma-buf, so
// that its addresses are the GPU's own.
func ExampleExport() {
	var context, ptr uintptr // of memory with an export descriptor
	memory, err := levelzero.Export(context, ptr, 1<<20, levelzero.ExportOptions{Name: "tensor"})
	if err != nil {
		fmt.Println("cannot export it:", err)
		return
	}
	defer memory.Close()
	for i, segment := range memory.Segments() {
		mr := memory.MRs[i]
		fmt.Printf("dma-buf %d: register %d bytes at offset %#x as IOVA %#x\n", segment.Buf.Inode(), mr.Length, mr.Offset, mr.IOVA)
	}
}
