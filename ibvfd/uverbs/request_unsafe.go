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
// itself, so it is pinned.
type request struct {
	hdr   ioctlHdr
	attrs [maxAttrs]attr
	cells [maxAttrs]uint64 // one for each attribute of form out
	block reregMR          // for the attribute of form block: the one input there is of more than 8 bytes
	taken atomic.Bool
	pin   runtime.Pinner // of a request that was made for one call
}

// complete writes what is the same in every request for m.
func (r *request) complete(m *method) {
	r.hdr, r.attrs = m.hdr, m.attrs
	for _, i := range m.outs {
		r.attrs[i].data = uint64(uintptr(unsafe.Pointer(&r.cells[i])))
	}
	if m.block >= 0 {
		r.attrs[m.block].data = uint64(uintptr(unsafe.Pointer(&r.block)))
	}
}

// spares are how many requests of a method can be under way before more are
// made: a registration then neither allocates nor pins, and writes its values
// only. The kernel marks output attributes as valid and does not mind a mark
// that is there already (uverbs_set_output in core/uverbs_ioctl.c).
const spares = 8

// forever pins the methods' spare requests.
var forever runtime.Pinner

// take returns a request for m; every input and object of it must be set.
func (m *method) take(driver uint32) *request {
	for i := range m.spare {
		if r := &m.spare[i]; r.taken.CompareAndSwap(false, true) {
			r.hdr.driverID = driver
			return r
		}
	}
	r := new(request)
	r.pin.Pin(r)
	r.complete(m)
	r.hdr.driverID = driver
	return r
}

// without leaves attributes of a request for m out, given by their order, the last one first. restore
// brings them back.
func (r *request) without(m *method, attrs ...int) (restore func()) {
	for _, i := range attrs {
		n := int(r.hdr.numAttrs)
		copy(r.attrs[i:n-1], r.attrs[i+1:n])
		r.hdr.numAttrs--
		r.hdr.length -= attrSize
	}
	return func() {
		driver := r.hdr.driverID
		r.complete(m)
		r.hdr.driverID = driver
	}
}

// free ends the use of a request.
func (r *request) free() {
	if !r.taken.CompareAndSwap(true, false) {
		r.pin.Unpin()
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

// outKeys reads attribute i as a struct ib_uverbs_rereg_mr_resp.
func (r *request) outKeys(i int) (lkey, rkey uint32) {
	resp := (*reregMRResp)(unsafe.Pointer(&r.cells[i]))
	return resp.lkey, resp.rkey
}

// newHandle is the handle of the object that attribute i made.
func (r *request) newHandle(i int) uint32 { return uint32(r.attrs[i].data) }

// do sends the request.
func (r *request) do(t ioctl.Transport, fd int) error {
	return t.Ioctl(fd, VerbsIoctl, unsafe.Pointer(&r.hdr))
}
