// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// Transport carries ioctls to the kernel, or to a script in tests.
type Transport = ioctl.Transport

// File is an open uverbs device with a context. All errors of its methods are
// bare unix.Errno values: the caller knows what they mean.
type File struct {
	t     Transport
	owned *fd.FD // nil if borrowed
	raw   int    // the borrowed descriptor
}

// Wrap borrows the descriptor of a context that somebody else made, and must
// keep open while the File is used. Close does nothing then.
func Wrap(t Transport, raw int) File { return File{t: t, raw: raw} }

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
func Open(t Transport, path string) (File, error) {
	owned, err := fd.Open(path, unix.O_RDWR)
	if err != nil {
		return File{}, err
	}
	f := File{t: t, owned: owned}
	if err := f.getContext(); err != nil {
		_ = owned.Close()
		return File{}, fmt.Errorf("GET_CONTEXT on %s without vendor data: %w", path, err)
	}
	return f, nil
}

// Close closes the descriptor, and with it every object made on it.
func (f File) Close() error {
	if f.owned == nil {
		return nil
	}
	return f.owned.Close()
}

// call sends a request and hands it to result before it is reused.
func (f File) call(m *method, result func(*request), values ...uint64) error {
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.encode(m, values...)
	var err error
	if f.owned != nil {
		err = f.owned.Do(func(raw int) error { return r.do(f.t, raw) })
	} else {
		err = r.do(f.t, f.raw)
	}
	if err == nil && result != nil {
		result(r)
	}
	return err
}

func (f File) getContext() error { return f.call(&getContext, nil, 0, 0) }

// AllocPD allocates a protection domain and returns its handle.
func (f File) AllocPD() (handle uint32, err error) {
	err = f.call(&invokeAllocPD, func(r *request) { handle = r.out32(1) }, 0, 0, cmdAllocPD)
	return handle, err
}

// DeallocPD frees a protection domain.
func (f File) DeallocPD(handle uint32) error {
	return f.call(&invokeDeallocPD, nil, uint64(handle), cmdDeallocPD)
}
