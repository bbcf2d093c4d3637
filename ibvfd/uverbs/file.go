// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// Transport carries ioctls to the kernel, or to a script in tests.
type Transport = ioctl.Transport

// File is an open uverbs device with a context. The errors of its methods are
// bare unix.Errno values, without the name of the operation or the device;
// os.ErrClosed after Close. The methods may be called from several goroutines at
// once.
type File struct {
	t     Transport
	owned *fd.FD // nil if borrowed
	raw   int    // the borrowed descriptor

	// driver is the enum rdma_driver_id that every request must name, plus
	// one; 0 until Identify has found it.
	driver atomic.Uint32
}

// Wrap borrows the descriptor of a context that other code made, and must
// keep open while the File is used. Close does nothing then.
func Wrap(t Transport, raw int) *File { return &File{t: t, raw: raw} }

// Kernel is the transport to the running kernel.
func Kernel() Transport { return ioctl.Kernel }

// Access says whether the node at path can be opened for reading and writing:
// nil, or an *os.PathError.
func Access(path string) error {
	f, err := fd.Open(path, unix.O_RDWR)
	if err != nil {
		return err
	}
	return f.Close()
}

// Open opens the node at path, "/dev/infiniband/uverbs0", and makes a context
// without vendor data. The error wraps an *os.PathError if the node cannot be
// opened, else the errno of GET_CONTEXT.
func Open(t Transport, path string) (*File, error) {
	owned, err := fd.Open(path, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	f := &File{t: t, owned: owned}
	if err := f.getContext(); err != nil {
		_ = owned.Close()
		return nil, fmt.Errorf("GET_CONTEXT on %s without vendor data: %w", path, err)
	}
	return f, nil
}

// Close closes the descriptor of a File that Open made, and with it every object made
// on it. A second Close does nothing.
func (f *File) Close() error {
	if f.owned == nil {
		return nil
	}
	return f.owned.Close()
}

// driverIDs bounds the search for the driver's number; enum rdma_driver_id had
// 21 of them in Linux 6.12.
const driverIDs = 64

// Identify finds the driver's number (enum rdma_driver_id) and remembers it;
// every other method calls it. The kernel compares the number before anything
// else: a request for an object that no kernel has is answered EINVAL to a
// wrong number, EPROTONOSUPPORT to the right one, and does nothing
// (ib_uverbs_cmd_verbs in drivers/infiniband/core/uverbs_ioctl.c).
//
// Callers that come at the same time all search, which harms nothing.
func (f *File) Identify() (driver uint32, err error) {
	if d := f.driver.Load(); d != 0 {
		return d - 1, nil
	}
	for id := uint32(0); id < driverIDs; id++ {
		r := noSuchObject.take(id)
		err := f.send(r)
		r.free()
		switch {
		case errors.Is(err, unix.EINVAL):
		case errors.Is(err, unix.EPROTONOSUPPORT):
			f.driver.Store(id + 1)
			return id, nil
		case err == nil: // not this kernel's uverbs
			return 0, unix.EPROTO
		default:
			return 0, err
		}
	}
	return 0, unix.EINVAL
}

// begin makes a request for m. The caller ends it with free.
func (f *File) begin(m *method) (*request, error) {
	known := f.driver.Load()
	if known == 0 {
		if _, err := f.Identify(); err != nil {
			return nil, err
		}
		known = f.driver.Load()
	}
	return m.take(known - 1), nil
}

// send sends the request.
func (f *File) send(r *request) error {
	if f.owned == nil {
		return r.do(f.t, f.raw)
	}
	raw, err := f.owned.Acquire()
	if err != nil {
		return err
	}
	defer f.owned.Release()
	return r.do(f.t, raw)
}

func (f *File) getContext() error {
	r, err := f.begin(getContext)
	if err != nil {
		return err
	}
	defer r.free()
	return f.send(r)
}

// AllocPD allocates a protection domain and returns its handle.
func (f *File) AllocPD() (handle uint32, err error) {
	r, err := f.begin(invokeAllocPD)
	if err != nil {
		return 0, err
	}
	defer r.free()
	r.in64(2, cmdAllocPD)
	err = f.send(r)
	return r.out32(1), err
}

// DeallocPD frees a protection domain.
func (f *File) DeallocPD(handle uint32) error {
	r, err := f.begin(invokeDeallocPD)
	if err != nil {
		return err
	}
	defer r.free()
	r.in32(0, handle)
	r.in64(1, cmdDeallocPD)
	return f.send(r)
}
