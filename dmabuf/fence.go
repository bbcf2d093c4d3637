// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// Wait blocks until the work that devices have queued on the buffer allows this
// access by the CPU: Read waits for writers, Write for readers and writers. On
// a buffer without fences it returns at once. When ctx ends, it returns ctx's
// error. Closing the Buf does not end a Wait. Source: the polling section of
// Documentation/driver-api/dma-buf.rst.
func (b *Buf) Wait(ctx context.Context, a Access) error {
	if _, err := a.flags("poll", b.fd.String()); err != nil {
		return err
	}
	var events int16 = unix.POLLIN
	if a&Write != 0 {
		events = unix.POLLOUT
	}
	return b.fail("poll", poll(ctx, b.fd, events))
}

// SyncFile has the fences that a buffer had at one moment, as one descriptor,
// which Vulkan and DRM syncobjs take for explicit synchronisation. Its methods may
// be called from several goroutines at once.
type SyncFile struct {
	fd *fd.FD
	t  ioctl.Transport
}

// NewSyncFile takes ownership of raw, which must be a sync_file (otherwise
// ENOTTY). If it fails, raw stays the caller's.
func NewSyncFile(raw int) (*SyncFile, error) {
	if _, err := syncFileInfo(kernel, raw); err != nil {
		e := failed("SYNC_IOC_FILE_INFO", raw, err)
		if errors.Is(err, unix.ENOTTY) {
			e.Detail = "not a sync_file"
		}
		return nil, e
	}
	f, err := fd.New(raw)
	if err != nil {
		return nil, failed("take", raw, err)
	}
	return &SyncFile{fd: f, t: kernel}, nil
}

// ExportSyncFile returns the fences that an access of kind a would have to
// wait for now; fences added later are not in it. Without fences the result is
// signalled already. The caller closes the SyncFile. Needs Linux 6.0; older kernels answer ENOTTY, which is
// errors.ErrUnsupported. Source: DMA_BUF_IOCTL_EXPORT_SYNC_FILE in
// include/uapi/linux/dma-buf.h.
func (b *Buf) ExportSyncFile(a Access) (*SyncFile, error) {
	const op = "DMA_BUF_IOCTL_EXPORT_SYNC_FILE"
	flags, err := a.flags(op, b.fd.String())
	if err != nil {
		return nil, err
	}
	var raw int
	err = b.fd.Do(func(n int) (err error) {
		raw, err = exportSyncFile(b.t, n, flags)
		return err
	})
	if err != nil {
		return nil, b.failFence(op, err)
	}
	f, err := fd.New(raw)
	if err != nil {
		return nil, b.fail(op, err)
	}
	return &SyncFile{fd: f, t: b.t}, nil
}

// ImportSyncFile adds the fences of f, which it borrows, to the buffer: as
// those of a reader (Read) or of a writer (Write, ReadWrite). Needs Linux 6.0;
// older kernels answer ENOTTY, which is errors.ErrUnsupported.
func (b *Buf) ImportSyncFile(a Access, f *SyncFile) error {
	const op = "DMA_BUF_IOCTL_IMPORT_SYNC_FILE"
	flags, err := a.flags(op, b.fd.String())
	if err != nil {
		return err
	}
	if f == nil {
		return &failure.Error{Op: op, Device: b.fd.String(), Detail: "no sync file", Err: unix.EBADF}
	}
	return b.failFence(op, b.fd.Do(func(raw int) error {
		return f.fd.Do(func(fence int) error { return importSyncFile(b.t, raw, flags, fence) })
	}))
}

func (b *Buf) failFence(op string, err error) error {
	if errors.Is(err, unix.ENOTTY) {
		return &failure.Error{Op: op, Device: b.fd.String(), Detail: "this kernel has no sync files for dma-bufs", Remedy: "use Linux 6.0 or newer, or Wait", Err: unix.ENOTTY}
	}
	return b.fail(op, err)
}

// Wait blocks until all fences have signalled. If ctx ends first, it returns ctx's
// error.
func (f *SyncFile) Wait(ctx context.Context) error {
	return f.fail("poll", poll(ctx, f.fd, unix.POLLIN))
}

// Signaled reports whether all fences have signalled. If a fence ended in an
// error, it returns the fence's errno. Source: SYNC_IOC_FILE_INFO in
// include/uapi/linux/sync_file.h.
func (f *SyncFile) Signaled() (bool, error) {
	var info abiSyncFileInfo
	err := f.fd.Do(func(raw int) (err error) {
		info, err = syncFileInfo(f.t, raw)
		return err
	})
	switch {
	case err != nil:
		return false, f.fail("SYNC_IOC_FILE_INFO", err)
	case info.Status < 0:
		return true, &failure.Error{Op: "fence", Device: f.fd.String(), Detail: fmt.Sprintf("%d fences", info.NumFences), Err: unix.Errno(-info.Status)}
	}
	return info.Status > 0, nil
}

func (f *SyncFile) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &failure.Error{Op: op, Device: f.fd.String(), Err: err}
}

// Do calls fn with the descriptor, which belongs to the SyncFile: fn must not
// close it.
func (f *SyncFile) Do(fn func(fd int) error) error { return f.fd.Do(fn) }

// Close closes the descriptor; closing again does nothing.
func (f *SyncFile) Close() error { return f.fd.Close() }
