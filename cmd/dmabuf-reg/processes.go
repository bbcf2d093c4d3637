// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// processes are those of --pid. When the last of them has ended, so has what it
// registered: a process closes its files before it can be waited for.
type processes struct {
	fds   []*os.File
	ended chan struct{} // closed then
}

// openProcesses holds on to processes by pidfd, so that a number that is used again is
// not taken for one of them.
func openProcesses(pids []int) (*processes, error) {
	p := &processes{ended: make(chan struct{})}
	if len(pids) == 0 {
		return p, nil // which never end
	}
	var running sync.WaitGroup
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("process %d: pidfd_open: %w", pid, err)
		}
		f := os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid))
		p.fds = append(p.fds, f)
		running.Go(func() { awaitEnd(f) })
	}
	go func() {
		running.Wait()
		close(p.ended)
	}()
	return p, nil
}

// awaitEnd returns when the process has ended, or its file is closed.
func awaitEnd(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	// A pidfd can be read from, to a poller, once its process has ended.
	_ = c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

func (p *processes) close() {
	for _, f := range p.fds {
		f.Close()
	}
}
