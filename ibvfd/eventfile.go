// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// eventFile waits in Go's poller for events of a descriptor that libibverbs
// reads: no thread is blocked. One goroutine has the turn at a time.
type eventFile struct {
	file    *os.File // a duplicate: libibverbs closes the descriptor itself
	conn    syscall.RawConn
	turn    chan struct{} // who has put something in has the turn
	closed  bool          // who reads or writes it has the turn
	closing atomic.Bool   // a close asks for the turn

	take func() error       // of the event: unix.EAGAIN if there is none
	took error              // what take answered last
	try  func(uintptr) bool // made once, so that waiting allocates nothing
}

// errInterrupted: somebody wants to close what is waited for.
var errInterrupted = errors.New("interrupted by a close")

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// newEventFile borrows fd, which does not block.
func newEventFile(fd int, take func() error) (*eventFile, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := &eventFile{file: os.NewFile(uintptr(dup), "RDMA events"), turn: make(chan struct{}, 1), take: take}
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

// lock takes the turn. It answers os.ErrClosed on what is closed.
func (f *eventFile) lock(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.closed {
		f.unlock()
		return os.ErrClosed
	}
	return nil
}

func (f *eventFile) unlock() { <-f.turn }

// wait takes an event, when there is one. The error is ctx's, errInterrupted, or
// take's. The caller has the turn.
func (f *eventFile) wait(ctx context.Context) error {
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
		return errInterrupted
	}
	return err
}

// unblock ends a deadline, unless it is a close's.
func (f *eventFile) unblock() {
	_ = f.file.SetReadDeadline(time.Time{})
	if f.closing.Load() {
		_ = f.file.SetReadDeadline(longAgo)
	}
}

// interrupt takes the turn for a close, from whoever waits.
func (f *eventFile) interrupt() {
	f.closing.Store(true)
	_ = f.file.SetReadDeadline(longAgo)
	f.turn <- struct{}{}
}

// resume gives the turn back: what is waited for stays open, or is closed for
// good.
func (f *eventFile) resume(closed bool) {
	f.closing.Store(false)
	if closed {
		f.closed = true
		_ = f.file.Close()
	} else {
		_ = f.file.SetReadDeadline(time.Time{})
	}
	f.unlock()
}
