// SPDX-License-Identifier: Apache-2.0

package hostmem

import "unsafe"

// Addr is the memory's virtual address, 0 once closed: the IOVA of an MR that
// was registered with IOVA 0.
func (h *Buf) Addr() uint64 { return AddrOf(h.Bytes()) }

// AddrOf is the address of memory that the garbage collector does not move.
func AddrOf(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
