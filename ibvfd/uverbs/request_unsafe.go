// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// maxAttrs is the most attributes of any method in schema.go.
const maxAttrs = 9

// request is a request in the kernel's layout and, behind it, the memory that
// the kernel writes through the attributes' pointers. It holds addresses inside
// itself, so it must not move from newRequest to free.
type request struct {
	hdr   ioctlHdr
	attrs [maxAttrs]attr
	cells [maxAttrs]uint64 // one for each attribute of form out
	slot  *atomic.Bool     // to clear when the request is spare again; nil if it was made for one call
	pin   runtime.Pinner
}

// spare are requests for as many calls at a time, in memory that never moves:
// a registration then neither allocates nor pins. Who needs more makes them.
var spare [16]struct {
	taken atomic.Bool
	request
}

func newRequest() *request {
	for i := range spare {
		if s := &spare[i]; s.taken.CompareAndSwap(false, true) {
			s.slot = &s.taken
			return &s.request
		}
	}
	r := new(request)
	r.pin.Pin(r)
	return r
}

// free ends the use of a request.
func (r *request) free() {
	if r.slot == nil {
		r.pin.Unpin()
		return
	}
	r.slot.Store(false)
}

// begin makes the request one for m, with every value zero.
func (r *request) begin(m *method, driver uint32) {
	r.hdr, r.attrs = m.hdr, m.attrs
	r.hdr.driverID = driver
	for _, i := range m.outs {
		r.cells[i] = 0
		r.attrs[i].data = uint64(uintptr(unsafe.Pointer(&r.cells[i])))
	}
}

// in32 and in64 set the value of attribute i: an object's handle, or an input
// at the start of the 8 bytes of data, where a C program's memcpy places it.
// The kernel insists that the rest is zero.
func (r *request) in32(i int, v uint32) { *(*uint32)(unsafe.Pointer(&r.attrs[i].data)) = v }
func (r *request) in64(i int, v uint64) { r.attrs[i].data = v }

// out32 and out64 read what the kernel wrote for attribute i.
func (r *request) out32(i int) uint32 { return *(*uint32)(unsafe.Pointer(&r.cells[i])) }
func (r *request) out64(i int) uint64 { return r.cells[i] }

// newHandle is the handle of the object that attribute i made.
func (r *request) newHandle(i int) uint32 { return *(*uint32)(unsafe.Pointer(&r.attrs[i].data)) }

// do sends the request.
func (r *request) do(t ioctl.Transport, fd int) error {
	return t.Ioctl(fd, VerbsIoctl, unsafe.Pointer(&r.hdr))
}
