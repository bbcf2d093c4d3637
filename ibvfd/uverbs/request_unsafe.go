// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"runtime"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// maxAttrs is the most attributes of any method in schema.go.
const maxAttrs = 9

// request is a request in the kernel's layout and, behind it, the memory that
// the kernel writes through the attributes' pointers. It holds addresses inside
// itself, so it is pinned from newRequest to free.
type request struct {
	hdr   ioctlHdr
	attrs [maxAttrs]attr
	cells [maxAttrs]uint64 // one for each attribute of form out
	pin   runtime.Pinner
}

// spare keeps requests for the next call, still pinned: a registration then
// neither allocates nor pins.
var spare = make(chan *request, 32)

func newRequest() *request {
	select {
	case r := <-spare:
		return r
	default:
	}
	r := new(request)
	r.pin.Pin(r)
	return r
}

// free ends the use of a request.
func (r *request) free() {
	select {
	case spare <- r:
	default:
		r.pin.Unpin()
	}
}

// encode fills the request. values are in the order of m.fields; those of
// form new and out are ignored.
func (r *request) encode(m *method, driver uint32, values ...uint64) {
	n := len(m.fields)
	r.attrs, r.cells = [maxAttrs]attr{}, [maxAttrs]uint64{}
	r.hdr = ioctlHdr{
		length:   uint16(unsafe.Sizeof(r.hdr) + uintptr(n)*unsafe.Sizeof(r.attrs[0])),
		objectID: m.object,
		methodID: m.id,
		numAttrs: uint16(n),
		driverID: driver,
	}
	for i, f := range m.fields {
		a := &r.attrs[i]
		a.attrID, a.flags = f.id, attrMandatory
		switch f.form {
		case formObject:
			a.data = values[i]
		case formNew:
		case formIn:
			a.len, a.data = f.size, inBits(values[i], f.size)
		case formOut:
			a.len, a.data = f.size, uint64(uintptr(unsafe.Pointer(&r.cells[i])))
		}
	}
}

// inBits places a value of size bytes at the start of the 8 bytes of data,
// as a C program's memcpy does. The kernel insists that the rest is zero.
func inBits(v uint64, size uint16) uint64 {
	var cell uint64
	if size == 4 {
		*(*uint32)(unsafe.Pointer(&cell)) = uint32(v)
		return cell
	}
	return v
}

// out32 and out64 read what the kernel wrote for attribute i.
func (r *request) out32(i int) uint32 { return *(*uint32)(unsafe.Pointer(&r.cells[i])) }
func (r *request) out64(i int) uint64 { return r.cells[i] }

// newHandle is the handle of the object that attribute i made.
func (r *request) newHandle(i int) uint32 { return *(*uint32)(unsafe.Pointer(&r.attrs[i].data)) }

// do sends the request.
func (r *request) do(t ioctl.Transport, fd int) error {
	return t.Ioctl(fd, VerbsIoctl, unsafe.Pointer(&r.hdr))
}
