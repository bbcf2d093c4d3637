// SPDX-License-Identifier: Apache-2.0

package fd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// FD owns one file descriptor. Use New, NewCloexec, Open or Dup to make one; the
// zero value is closed.
type FD struct {
	mu      sync.RWMutex // read-held while the descriptor is in use
	raw     int
	open    bool
	cleanup runtime.Cleanup
}

// New takes ownership of raw, which must be open. The descriptor is set
// close-on-exec.
func New(raw int) (*FD, error) {
	if raw < 0 {
		return nil, fmt.Errorf("file descriptor %d: %w", raw, unix.EBADF)
	}
	if _, err := unix.FcntlInt(uintptr(raw), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("file descriptor %d: %w", raw, err)
	}
	return NewCloexec(raw), nil
}

// NewCloexec takes ownership of raw, which the kernel has just returned as
// close-on-exec.
func NewCloexec(raw int) *FD {
	f := &FD{raw: raw, open: true}
	trackOpen(raw)
	f.cleanup = runtime.AddCleanup(f, reclaim, raw)
	return f
}

// reclaim runs when an FD was dropped without Close. It is a safety net, not
// a way of closing: tests treat it as a leak.
func reclaim(raw int) {
	trackLeaked(raw)
	_ = unix.Close(raw)
}

// Open opens path close-on-exec. The error is an *os.PathError.
func Open(path string, flags int) (*FD, error) {
	for {
		raw, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return NewCloexec(raw), nil
	}
}

// Dup returns an FD on a duplicate of raw, which it borrows.
func Dup(raw int) (*FD, error) {
	if raw < 0 {
		return nil, fmt.Errorf("file descriptor %d: %w", raw, unix.EBADF)
	}
	dup, err := unix.FcntlInt(uintptr(raw), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate file descriptor %d: %w", raw, err)
	}
	return NewCloexec(dup), nil
}

// Do calls fn with the descriptor, which stays open until fn returns. It
// answers os.ErrClosed without calling fn when the FD is closed. fn must not
// call Close or Disown on the same FD.
func (f *FD) Do(fn func(raw int) error) error {
	raw, err := f.Acquire()
	if err != nil {
		return err
	}
	defer f.Release()
	return fn(raw)
}

// Acquire returns the descriptor, which stays open until Release, or
// os.ErrClosed. It is Do for a hot path.
func (f *FD) Acquire() (raw int, err error) {
	f.mu.RLock()
	if !f.open {
		f.mu.RUnlock()
		return -1, os.ErrClosed
	}
	return f.raw, nil
}

// Release ends the use that Acquire began.
func (f *FD) Release() { f.mu.RUnlock() }

// Dup returns an independent FD for the same open file.
func (f *FD) Dup() (*FD, error) {
	var d *FD
	err := f.Do(func(raw int) (err error) {
		d, err = Dup(raw)
		return err
	})
	return d, err
}

// Disown gives the descriptor to the caller. The caller must close it.
func (f *FD) Disown() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		return -1, os.ErrClosed
	}
	f.forget()
	return f.raw, nil
}

// Close closes the descriptor and waits for operations that use it. Closing
// again does nothing.
func (f *FD) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		return nil
	}
	f.forget()
	return unix.Close(f.raw)
}

// Closed reports whether the FD has given its descriptor up.
func (f *FD) Closed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return !f.open
}

func (f *FD) forget() {
	f.open = false
	f.cleanup.Stop()
	trackClosed(f.raw)
}

// String names the descriptor for messages, by the number that it has or had: an
// error may be read when all is closed.
func (f *FD) String() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return fmt.Sprintf("fd %d", f.raw)
}
