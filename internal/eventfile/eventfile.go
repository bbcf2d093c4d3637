// SPDX-License-Identifier: Apache-2.0

package eventfile

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// File waits for events: no thread is blocked. One goroutine has the turn at a
// time.
type File struct {
	file    *os.File // a duplicate: the library closes the descriptor itself
	conn    syscall.RawConn
	turn    chan struct{} // has a value while a goroutine has the turn, which has put it in
	closed  bool          // only the goroutine with the turn reads or writes it
	closing atomic.Bool   // a close asks for the turn

	take func() error       // of the event: unix.EAGAIN if there is none
	took error              // what take answered last
	try  func(uintptr) bool // made once, so that waiting allocates nothing
}

// ErrInterrupted ends a Wait because another goroutine closes the object whose events it waits for.
var ErrInterrupted = errors.New("interrupted by a close")

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// New borrows fd, which does not block. take takes one event, and answers
// unix.EAGAIN if there is none; it runs in Wait only.
func New(fd int, take func() error) (*File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := &File{file: os.NewFile(uintptr(dup), "RDMA events"), turn: make(chan struct{}, 1), take: take}
	f.try = func(uintptr) bool {
		f.took = f.take()
		return !errors.Is(f.took, unix.EAGAIN)
	}
	// A descriptor that the poller does not take could not be waited for.
	if err = f.file.SetReadDeadline(time.Time{}); err == nil {
		f.conn, err = f.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, f.file.Close())
	}
	return f, nil
}

// Lock takes the turn. It answers os.ErrClosed if the File is closed.
func (f *File) Lock(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.closed {
		f.Unlock()
		return os.ErrClosed
	}
	return nil
}

// Unlock gives the turn back.
func (f *File) Unlock() { <-f.turn }

// Wait takes an event, when there is one. The error is ctx's, ErrInterrupted, or
// take's. The caller has the turn.
func (f *File) Wait(ctx context.Context) error {
	if ctx.Done() != nil {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = f.file.SetReadDeadline(longAgo)
			close(ended)
		})
		defer func() {
			if !stop() {
				<-ended
				f.unblock()
			}
		}()
	}
	err := f.conn.Read(f.try)
	if err == nil {
		return f.took
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.closing.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrInterrupted
	}
	return err
}

// unblock ends a deadline, unless it is a close's.
func (f *File) unblock() {
	_ = f.file.SetReadDeadline(time.Time{})
	if f.closing.Load() {
		_ = f.file.SetReadDeadline(longAgo)
	}
}

// Interrupt takes the turn for a close. A goroutine in Wait gets ErrInterrupted.
func (f *File) Interrupt() {
	f.closing.Store(true)
	_ = f.file.SetReadDeadline(longAgo)
	f.turn <- struct{}{}
}

// Resume gives back the turn that Interrupt took. With closed set the File is closed
// for good; otherwise it can be waited on again.
func (f *File) Resume(closed bool) {
	f.closing.Store(false)
	if closed {
		f.closed = true
		_ = f.file.Close()
	} else {
		_ = f.file.SetReadDeadline(time.Time{})
	}
	f.Unlock()
}

// Close closes a File on which no goroutine has waited.
func (f *File) Close() error { return f.file.Close() }
