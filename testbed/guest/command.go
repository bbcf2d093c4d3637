// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/wire"
)

// Exit statuses that shells use for commands that did not start.
const (
	statusCannotRun = 126
	statusNotFound  = 127
)

// drainTime is how long processes that a command left behind may take to die
// after SIGKILL. One that hangs in the kernel takes forever.
const drainTime = 5 * time.Second

// current is the running command; there is one at a time.
var current struct {
	sync.Mutex
	pid int
	pty *os.File
}

func (g *guest) signal(sig unix.Signal) {
	current.Lock()
	defer current.Unlock()
	if current.pid > 0 {
		unix.Kill(-current.pid, sig)
	}
}

func (g *guest) resize(rows, cols uint16) {
	current.Lock()
	defer current.Unlock()
	if current.pty != nil {
		unix.IoctlSetWinsize(int(current.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
}

// start runs a command in the background and reports its end.
func (g *guest) start(r wire.Run) {
	go func() {
		exit := g.command(r)
		g.conn.Send(wire.Message{Type: wire.Exited, Exit: &exit})
	}()
}

func (g *guest) command(r wire.Run) wire.Exit {
	path, err := lookPath(r)
	if err != nil {
		status := statusCannotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			status = statusNotFound
		}
		return wire.Exit{Status: status, Error: err.Error()}
	}
	var streams *streams
	if r.TTY {
		streams, err = g.terminal(r)
	} else {
		streams, err = g.pipes(r)
	}
	if err != nil {
		return wire.Exit{Status: statusCannotRun, Error: err.Error()}
	}
	defer streams.close()

	attr := &syscall.ProcAttr{
		Dir:   r.Dir,
		Env:   r.Env,
		Files: []uintptr{streams.child[0].Fd(), streams.child[1].Fd(), streams.child[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: r.TTY, Ctty: 0},
	}
	pid, ended, err := g.reaper.start(path, r.Args, attr)
	streams.closeChild()
	if err != nil {
		return wire.Exit{Status: statusCannotRun, Error: fmt.Sprintf("%s: %v", path, err)}
	}
	current.Lock()
	current.pid, current.pty = pid, streams.pty
	current.Unlock()
	status := <-ended
	current.Lock()
	current.pid, current.pty = 0, nil
	current.Unlock()

	exit := wire.Exit{Status: status.ExitStatus()}
	if status.Signaled() {
		exit.Status, exit.Signal = 128+int(status.Signal()), unix.SignalName(status.Signal())
	}
	g.input.detach()
	// Processes that the command left running would write into the next command's
	// output, so they are killed here. Init itself is exempt from kill(-1).
	unix.Kill(-1, unix.SIGKILL)
	exit.Stdout, exit.Stderr, exit.Left = streams.drain(drainTime)
	return exit
}

// lookPath finds the command as a shell would, in the command's own PATH and
// directory.
func lookPath(r wire.Run) (string, error) {
	name := r.Args[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(r.Dir, name)
		}
		_, err := os.Stat(name)
		return name, err
	}
	for _, e := range r.Env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(dirs) {
			p := filepath.Join(d, name)
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p, nil
			}
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// streams connects a command's standard streams with the ports.
type streams struct {
	child    [3]*os.File
	pty      *os.File
	input    *os.File // our end of the child's standard input
	out, err *copier
}

func (g *guest) pipes(r wire.Run) (*streams, error) {
	s := &streams{}
	if r.Stdin {
		pr, pw, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.child[0], s.input = pr, pw
	} else {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		s.child[0] = null
	}
	for i, port := range []*os.File{g.stdout, g.stderr} {
		pr, pw, err := os.Pipe()
		if err != nil {
			s.closeChild()
			s.close()
			return nil, err
		}
		s.child[i+1] = pw
		c := &copier{from: pr, to: port}
		if i == 0 {
			s.out = c
		} else {
			s.err = c
		}
		c.start()
	}
	if s.input != nil {
		g.input.attach(s.input, r.StdinAt)
	}
	return s, nil
}

// terminal gives the command a pseudo-terminal. Both of its output streams
// are the port of standard output then.
func (g *guest) terminal(r wire.Run) (*streams, error) {
	pty, err := os.OpenFile("/dev/pts/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: r.Rows, Col: r.Cols})
	}
	if err != nil {
		pty.Close()
		return nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		pty.Close()
		return nil, err
	}
	s := &streams{pty: pty, child: [3]*os.File{tty, tty, tty}}
	s.out = &copier{from: pty, to: g.stdout}
	s.out.start()
	g.input.attach(pty, r.StdinAt)
	return s, nil
}

func (s *streams) closeChild() {
	for i, f := range s.child {
		if f != nil && (i == 0 || f != s.child[0]) {
			f.Close()
		}
	}
}

func (s *streams) close() {
	for _, c := range []*copier{s.out, s.err} {
		if c != nil {
			c.from.Close()
		}
	}
	if s.input != nil {
		s.input.Close()
	}
}

// drain waits until everything written has gone to the ports and returns the
// lengths. left names what still holds the streams after the time.
func (s *streams) drain(limit time.Duration) (stdout, stderr int64, left string) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for _, c := range []*copier{s.out, s.err} {
		if c == nil {
			continue
		}
		select {
		case <-c.done:
		case <-timeout.C:
			// A process that even SIGKILL does not end holds the stream.
			if left == "" {
				left = survivors()
			}
			c.cut.Store(true)
			timeout.Reset(0)
		}
	}
	stdout = s.out.n.Load()
	if s.err != nil {
		stderr = s.err.n.Load()
	}
	return stdout, stderr, left
}

// copier copies one stream to its port.
type copier struct {
	from, to *os.File
	n        atomic.Int64 // bytes written to the port
	cut      atomic.Bool  // nothing more may be written
	done     chan struct{}
}

func (c *copier) start() {
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := c.from.Read(buf)
			if n > 0 && !c.cut.Load() {
				w, werr := c.to.Write(buf[:n])
				c.n.Add(int64(w))
				if werr != nil {
					return
				}
			}
			if err != nil {
				return // end of file; EIO from a terminal whose last user is gone
			}
		}
	}()
}

// survivors lists user processes other than init.
func survivors() string {
	var names []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if d == "/proc/1" {
			continue
		}
		if cmd, err := os.ReadFile(d + "/cmdline"); err != nil || len(cmd) == 0 {
			continue // gone, a kernel thread or a zombie
		}
		comm, _ := os.ReadFile(d + "/comm")
		wchan, _ := os.ReadFile(d + "/wchan")
		names = append(names, fmt.Sprintf("%s %s in %s", filepath.Base(d), strings.TrimSpace(string(comm)), wchan))
	}
	return strings.Join(names, "; ")
}

// maxQueued bounds the input that is read ahead of a command.
const maxQueued = 1 << 20

// input forwards the port of standard input to the current command. Positions
// count from the first byte that ever came through the port, so that what one
// command left unread is not taken for the next one's input.
type input struct {
	mu    sync.Mutex
	cond  *sync.Cond
	to    *os.File // the current command's standard input
	queue []byte
	start int64 // position of the queue's first byte
	begin int64 // position at which the current command's input begins
	end   int64 // position at which the current command's input ends, -1 while unknown
}

func newInput(port io.Reader) *input {
	in := &input{end: -1}
	in.cond = sync.NewCond(&in.mu)
	go in.receive(port)
	go in.forward()
	return in
}

func (in *input) receive(port io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := port.Read(buf)
		in.mu.Lock()
		in.queue = append(in.queue, buf[:n]...)
		in.skip()
		in.cond.Broadcast()
		for len(in.queue) > maxQueued {
			in.cond.Wait()
		}
		in.mu.Unlock()
		if err != nil {
			// The port reads as ended until the host has opened it.
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// attach starts a command's input, which begins at a position.
func (in *input) attach(to *os.File, position int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.to, in.begin, in.end = to, position, -1
	in.skip()
	in.cond.Broadcast()
}

// skip drops what was meant for a command that has ended. It may arrive after
// the next one has begun.
func (in *input) skip() {
	n := min(max(in.begin-in.start, 0), int64(len(in.queue)))
	in.queue = in.queue[n:]
	in.start += n
}

// detach ends a command's input.
func (in *input) detach() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.to = nil
}

// eof says where the current command's input ends.
func (in *input) eof(position int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end = position
	in.cond.Broadcast()
}

func (in *input) forward() {
	for {
		in.mu.Lock()
		for in.to == nil || len(in.queue) == 0 && (in.end < 0 || in.start < in.end) {
			in.cond.Wait()
		}
		to, data := in.to, in.queue
		in.queue = nil
		in.start += int64(len(data))
		last := in.end >= 0 && in.start >= in.end
		if last {
			in.to = nil
		}
		in.cond.Broadcast()
		in.mu.Unlock()
		if len(data) > 0 {
			to.Write(data) // a command that does not read gets no more
		}
		if last {
			to.Close()
		}
	}
}
