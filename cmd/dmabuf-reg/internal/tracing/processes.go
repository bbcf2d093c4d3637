// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
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
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			p.close()
			return nil, noProcess(pid, err)
		}
		p.fds = append(p.fds, os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid)))
	}
	go func() {
		for _, f := range p.fds {
			if awaitEnd(f) != nil { // closed
				return
			}
		}
		close(p.ended)
	}()
	return p, nil
}

func noProcess(pid int, err error) error {
	e, _ := errno.Of(err)
	switch e {
	case unix.ESRCH:
		return &cli.Unavailable{Err: &failure.Error{
			Op: "trace", Device: fmt.Sprintf("process %d", pid), Remedy: "name one that runs, in this PID namespace", Err: unix.ESRCH,
		}}
	case unix.EINVAL, unix.ENOENT: // by the kernel's age
		return &cli.UsageError{Err: fmt.Errorf("--pid %d is a thread, and no process: name the one that it belongs to (Tgid in /proc/%d/status)", pid, pid)}
	}
	return fmt.Errorf("--pid %d: pidfd_open: %s", pid, errno.Text(e))
}

// awaitEnd returns when the process has ended, or with an error when its file is closed.
func awaitEnd(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// A pidfd can be read from, to a poller, once its process has ended.
	return c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

func (p *processes) close() {
	for _, f := range p.fds {
		f.Close()
	}
}
