// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/fd"
)

// poll waits until events are ready on f, or ctx ends. It works on a duplicate,
// so that closing f neither waits for it nor pulls the descriptor away.
func poll(ctx context.Context, f *fd.FD, events int16) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dup, err := f.Dup()
	if err != nil {
		return err
	}
	defer dup.Close()
	raw, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	wake := fd.NewCloexec(raw)
	defer wake.Close()
	stop := context.AfterFunc(ctx, func() {
		// A failed write means that the waiter has gone already.
		_ = wake.Do(func(n int) error {
			_, err := unix.Write(n, []byte{1, 0, 0, 0, 0, 0, 0, 0})
			return err
		})
	})
	defer stop()
	return dup.Do(func(target int) error {
		return wake.Do(func(waker int) error {
			set := []unix.PollFd{
				{Fd: int32(target), Events: events},
				{Fd: int32(waker), Events: unix.POLLIN},
			}
			for {
				_, err := unix.Poll(set, -1)
				switch {
				case errors.Is(err, unix.EINTR):
					continue
				case err != nil:
					return err
				case set[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0:
					return unix.EIO
				case set[0].Revents&events != 0:
					return nil
				case ctx.Err() != nil:
					return ctx.Err()
				}
			}
		})
	})
}
