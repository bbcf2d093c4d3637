// SPDX-License-Identifier: Apache-2.0

package rocm_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/rocm"
)

// The GPUs of this machine.
func ExampleDevices() {
	devices, err := rocm.Devices(gpualloc.Env{})
	if err != nil {
		fmt.Println("no ROCm here:", err)
		return
	}
	for _, d := range devices {
		fmt.Println(d, d.TotalMem)
	}
}

// Export memory that the program has already, and find the MR for each dma-buf, so
// that its addresses are the GPU's own.
func ExampleExport() {
	var ptr uintptr // a tensor's, from the framework
	memory, err := rocm.Export(ptr, 1<<20, rocm.ExportOptions{Name: "tensor"})
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
