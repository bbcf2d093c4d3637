// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// kernel repeats EAGAIN too: that is how GPU drivers, whose code runs below
// these ioctls, ask for a restart.
var kernel = ioctl.RetryAgain(ioctl.Kernel)

// Buf is one dma-buf file descriptor. Its methods may be called from several
// goroutines at once.
type Buf struct {
	fd    *fd.FD
	t     ioctl.Transport
	size  int64
	inode uint64
}

// New takes ownership of raw, which must be a dma-buf. If New fails, raw stays
// the caller's and stays open.
//
// New proves by the magic number of the descriptor's file system, DMA_BUF_MAGIC
// (fstatfs(2)), that it is a dma-buf; dma-bufs have this file system from Linux
// 5.3 on. For another descriptor New returns [ErrNotDMABuf], with what the
// descriptor is.
func New(raw int) (*Buf, error) {
	size, inode, err := identify(raw)
	if err != nil {
		return nil, err
	}
	owned, err := fd.New(raw)
	if err != nil {
		return nil, failed("take", raw, err)
	}
	return &Buf{fd: owned, t: kernel, size: size, inode: inode}, nil
}

// NewExported is [New] for a descriptor that an exporter's ioctl has just
// returned with O_CLOEXEC set: it saves a system call.
func NewExported(raw int) (*Buf, error) {
	size, inode, err := identify(raw)
	if err != nil {
		return nil, err
	}
	return &Buf{fd: fd.NewCloexec(raw), t: kernel, size: size, inode: inode}, nil
}

// Import is [New] for a descriptor that it borrows: the Buf works on a
// duplicate, and raw stays the caller's.
func Import(raw int) (*Buf, error) {
	dup, err := fd.Dup(raw)
	if err != nil {
		return nil, failed("F_DUPFD_CLOEXEC", raw, err)
	}
	var b *Buf
	err = dup.Do(func(n int) (err error) {
		size, inode, err := identify(n)
		b = &Buf{fd: dup, t: kernel, size: size, inode: inode}
		return err
	})
	if err != nil {
		var e *failure.Error
		if errors.As(err, &e) {
			e.Device = fmt.Sprintf("fd %d", raw) // the caller's number, not the duplicate's
		}
		_ = dup.Close()
		return nil, err
	}
	return b, nil
}

// failed wraps an error about a raw descriptor.
func failed(op string, raw int, err error) *failure.Error {
	e := &failure.Error{Op: op, Device: fmt.Sprintf("fd %d", raw), Err: err}
	var n unix.Errno
	if errors.As(err, &n) {
		e.Err = n
	}
	switch n {
	case unix.EBADF:
		e.Detail, e.Remedy = "the descriptor is not open", "pass one that is open in this process (/proc/self/fd lists them)"
	case unix.EMFILE:
		e.Remedy = "raise RLIMIT_NOFILE (ulimit -n)"
	}
	return e
}

// fileSystem is the device number of the dma-bufs' file system, once one has
// been seen. There is one, which the kernel mounts when it starts and never
// unmounts (dma_buf_init in drivers/dma-buf/dma-buf.c), so a file on that device
// is a dma-buf. No file system has the number 0.
var fileSystem atomic.Uint64

// identify proves that raw is a dma-buf and reads what never changes about it.
func identify(raw int) (size int64, inode uint64, err error) {
	// The inode has the size since dma-bufs have a file system of their own
	// (dma_buf_getfile in drivers/dma-buf/dma-buf.c).
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(raw, &st) }); err != nil {
		return 0, 0, failed("fstat", raw, err)
	}
	if known := fileSystem.Load(); known == 0 || st.Dev != known {
		if err := proveMagic(raw); err != nil {
			return 0, 0, err
		}
		fileSystem.Store(st.Dev)
	}
	return st.Size, st.Ino, nil
}

// proveMagic asks for the number of raw's file system.
func proveMagic(raw int) error {
	var sfs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(raw, &sfs) }); err != nil {
		return failed("fstatfs", raw, err)
	}
	if int64(sfs.Type) != unix.DMA_BUF_MAGIC {
		return &failure.Error{
			Op:     "import",
			Device: fmt.Sprintf("fd %d", raw),
			Detail: "it is " + whatIs(raw, int64(sfs.Type)),
			Remedy: "export the memory as a dma-buf and pass that descriptor",
			Err:    ErrNotDMABuf,
		}
	}
	return nil
}

// whatIs describes a descriptor that is no dma-buf.
func whatIs(raw int, fsType int64) string {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", raw))
	if err != nil {
		link = "something"
	}
	switch {
	case strings.HasPrefix(link, "/memfd:"):
		return fmt.Sprintf("a memfd (%s)", strings.TrimSuffix(link, " (deleted)"))
	case strings.HasPrefix(link, "socket:"):
		return "a socket"
	case strings.HasPrefix(link, "pipe:"):
		return "a pipe"
	case strings.HasPrefix(link, "anon_inode:"):
		return link
	case strings.HasPrefix(link, "/dev/"):
		return "the device node " + link
	}
	return fmt.Sprintf("%s, on a file system of type %#x", link, fsType)
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// fail wraps an error of an operation on the buffer's own descriptor.
func (b *Buf) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *failure.Error
	if errors.As(err, &e) {
		return err
	}
	return &failure.Error{Op: op, Device: b.fd.String(), Err: err}
}

// Do calls fn with the descriptor, which belongs to the Buf and stays open
// until fn returns: fn must not close it, nor call b.Close. On a closed Buf, Do
// returns os.ErrClosed and does not call fn.
func (b *Buf) Do(fn func(fd int) error) error { return b.fd.Do(fn) }

// Acquire is Do without a function: it returns the descriptor, which belongs to
// the Buf and stays open until Release. On a closed Buf it returns
// os.ErrClosed.
func (b *Buf) Acquire() (fd int, err error) { return b.fd.Acquire() }

// Release ends the use that Acquire began. It must be called once for each
// Acquire that succeeded.
func (b *Buf) Release() { b.fd.Release() }

// Size is the buffer's size in bytes, a multiple of the page size. It never
// changes, and is valid after Close.
func (b *Buf) Size() int64 { return b.size }

// Inode identifies the buffer on this machine: all descriptors of one buffer,
// in all processes, have the same inode, and /proc/PID/fdinfo and the kernel's
// dma_buf/bufinfo show it. It is valid after Close, too.
func (b *Buf) Inode() uint64 { return b.inode }

// Dup returns another Buf of the same buffer, with a descriptor of its own. The
// caller closes it.
func (b *Buf) Dup() (*Buf, error) {
	d, err := b.fd.Dup()
	if err != nil {
		return nil, b.fail("F_DUPFD_CLOEXEC", err)
	}
	return &Buf{fd: d, t: b.t, size: b.size, inode: b.inode}, nil
}

// Close closes the descriptor. The memory lives on while a mapping, another
// descriptor or an importer has a reference. Close waits for running
// operations; closing again does nothing.
func (b *Buf) Close() error { return b.fd.Close() }

// Closed reports whether the Buf has been closed.
func (b *Buf) Closed() bool { return b.fd.Closed() }

// String names the buffer for messages.
func (b *Buf) String() string {
	return fmt.Sprintf("%v (dma-buf inode %d, %d bytes)", b.fd, b.inode, b.size)
}

// SetName names the buffer for fdinfo, bufinfo and [Inventory]: at most 31
// bytes, none of them zero. The name belongs to the buffer, not to the
// descriptor. Needs Linux 5.3. Source: DMA_BUF_SET_NAME in
// include/uapi/linux/dma-buf.h.
func (b *Buf) SetName(name string) error {
	if len(name) >= nameLen || strings.ContainsRune(name, 0) {
		return &failure.Error{
			Op: "DMA_BUF_SET_NAME", Device: b.fd.String(),
			Detail: fmt.Sprintf("name %q has %d bytes", name, len(name)),
			Remedy: fmt.Sprintf("use at most %d bytes, none of them zero", nameLen-1),
			Err:    unix.EINVAL,
		}
	}
	return b.fail("DMA_BUF_SET_NAME", b.fd.Do(func(raw int) error { return setName(b.t, raw, name) }))
}
