// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ofKernel is the group to which the kernel sends. That of udev (2) has another form.
const ofKernel = 1

// room is the size of the socket's buffer that Open asks for. The kernel gives at most net.core.rmem_max.
const room = 1 << 20

// Watcher gets the kernel's messages.
type Watcher struct {
	f *os.File
}

// Open begins to watch. It needs no privileges.
func Open() (*Watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("watch the kernel's devices: %w", os.NewSyscallError("socket", err))
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // with less, more messages are lost, which counts as a change
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ofKernel}); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the kernel's devices: %w", os.NewSyscallError("bind", err)), unix.Close(fd))
	}
	return of(fd), nil
}

// of takes a socket that does not block.
func of(fd int) *Watcher { return &Watcher{os.NewFile(uintptr(fd), "uevents")} }

// Close ends Watch.
func (w *Watcher) Close() error { return w.f.Close() }

// Watch calls change after each change of devices, until the context ends or the socket fails. It closes the
// watcher. Lost messages are a change, too.
func (w *Watcher) Watch(ctx context.Context, change func()) error {
	return w.watch(ctx, quiet, most, change)
}

func (w *Watcher) watch(ctx context.Context, quiet, most time.Duration, change func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer end()
	events := make(chan struct{}, 1)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		settle(ctx, events, quiet, most, change)
	}()
	err := w.read(events)
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	<-settled
	return err
}

// read takes messages until the socket fails or is closed.
func (w *Watcher) read(events chan<- struct{}) error {
	buf := make([]byte, longest+1)
	for {
		n, err := w.receive(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // the socket's buffer was full, and messages are lost
			return fmt.Errorf("watch the kernel's devices: %w", err)
		}
		if err != nil || concerns(buf[:n]) {
			select {
			case events <- struct{}{}:
			default: // one is waiting
			}
		}
	}
}

// receive takes one message. One that is longer than the buffer fills it.
func (w *Watcher) receive(buf []byte) (n int, err error) {
	c, err := w.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	err2 := c.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), buf, 0)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if err2 != nil {
		return 0, err2
	}
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return n, nil
}
