// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/fd"
)

// Memfd is anonymous memory that udmabuf accepts: a memfd that is sealed
// against shrinking, whose ordinary pages are all allocated.
type Memfd struct {
	fd   *fd.FD
	size int64
}

// NewMemfd makes a Memfd of size bytes, a multiple of the page size. The kernel
// allocates and zeroes all its pages at once. So a size that memory cannot hold
// fails in NewMemfd, and not in the first transfer; or the kernel runs the OOM
// killer, so compare the size with MemAvailable first. The caller closes the
// Memfd.
//
// Pages are never huge: Linux 6.12's udmabuf maps only the first page of a
// large folio into the kernel's address space (vmap), and an importer that
// copies by CPU would use wrong memory.
func NewMemfd(name string, size int64) (*Memfd, error) {
	device := "memfd:" + name
	if size <= 0 || size%int64(os.Getpagesize()) != 0 || size > math.MaxInt {
		return nil, &failure.Error{
			Op: "memfd_create", Device: device,
			Detail: fmt.Sprintf("size %d", size),
			Remedy: fmt.Sprintf("use a positive multiple of the page size, %d", os.Getpagesize()),
			Err:    failure.ErrRange,
		}
	}
	if err := refuseImpossible("memfd_create", device, size, true); err != nil {
		return nil, err
	}
	raw, err := memfdCreate(name)
	if err != nil {
		return nil, &failure.Error{Op: "memfd_create", Device: device, Err: err}
	}
	f := fd.NewCloexec(raw)
	m := &Memfd{fd: f, size: size}
	if err := f.Do(func(raw int) error { return fill(raw, device, size) }); err != nil {
		_ = f.Close()
		return nil, err
	}
	return m, nil
}

// memfdCreate prefers MFD_NOEXEC_SEAL (Linux 6.3), without which newer kernels
// log a complaint.
func memfdCreate(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	raw, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		raw, err = unix.MemfdCreate(name, flags)
	}
	return raw, err
}

// fill gives the file its size, its seal and its pages. The pages come through a
// mapping: fallocate(2) would leave them to be zeroed by their first reader,
// and udmabuf is not one that does.
func fill(raw int, device string, size int64) error {
	if err := retry(func() error { return unix.Ftruncate(raw, size) }); err != nil {
		return &failure.Error{Op: "ftruncate", Device: device, Detail: bytesize.Format(size), Err: err}
	}
	if _, err := unix.FcntlInt(uintptr(raw), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return &failure.Error{Op: "F_ADD_SEALS", Device: device, Detail: "F_SEAL_SHRINK", Err: err}
	}
	pages, unmap, err := mapShared(raw, int(size))
	if err != nil {
		return &failure.Error{Op: "mmap", Device: device, Detail: bytesize.Format(size), Err: err}
	}
	defer unmap()
	// Without CONFIG_TRANSPARENT_HUGEPAGE this is EINVAL, and not needed.
	if err := unix.Madvise(pages, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return &failure.Error{Op: "madvise(MADV_NOHUGEPAGE)", Device: device, Err: err}
	}
	err = retry(func() error { return unix.Madvise(pages, unix.MADV_POPULATE_WRITE) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL): // before Linux 5.14
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 0
		}
		return nil
	}
	return &failure.Error{
		Op: "madvise(MADV_POPULATE_WRITE)", Device: device,
		Detail: bytesize.Format(size), Remedy: "ask for less memory, or raise the cgroup's memory.max", Err: err,
	}
}

// Size is the size in bytes.
func (m *Memfd) Size() int64 { return m.size }

// Do calls fn with the descriptor, which belongs to the Memfd: fn must not
// close it.
func (m *Memfd) Do(fn func(fd int) error) error { return m.fd.Do(fn) }

// Close closes the descriptor. A udmabuf made from it keeps its pages. Closing
// again does nothing.
func (m *Memfd) Close() error { return m.fd.Close() }
