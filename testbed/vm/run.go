// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gpurdma/gpurdma/testbed/wire"
)

// Cmd is a command to run in a guest.
type Cmd struct {
	Node    string // empty: the first
	Args    []string
	Dir     string
	Env     []string
	Stdin   io.Reader     // nil: /dev/null
	Stdout  io.Writer     // nil: dropped
	Stderr  io.Writer     // nil: dropped; unused with TTY
	Timeout time.Duration // 0: none
	TTY     bool          // the streams are one terminal

	Rows, Cols uint16 // of the terminal
	Resize     <-chan Size
}

// Size is a terminal's.
type Size struct{ Rows, Cols uint16 }

// drainLimit bounds the wait for output that the guest says it has sent.
const drainLimit = 30 * time.Second

// Run runs a command in a guest and returns its exit status, as a shell would
// give it. The error says why there is no status to rely on: the kernel
// reported a fault, the watchdog ended the run, or the test bed failed. One
// command runs on a node at a time; processes that it leaves running are killed.
func (v *VM) Run(ctx context.Context, c Cmd) (int, error) {
	n, err := v.node(c.Node)
	if err != nil {
		return 0, err
	}
	if len(c.Args) == 0 {
		return 0, errors.New("no command")
	}
	n.at("running " + quote(c.Args))
	n.stdout.reset(c.Stdout)
	n.stderr.reset(c.Stderr)
	var limit <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		limit = t.C
	}
	err = n.conn.Send(wire.Message{Type: wire.RunCmd, Run: &wire.Run{
		Args: c.Args, Dir: c.Dir, Env: c.Env, Stdin: c.Stdin != nil, StdinAt: n.fed.Load(), TTY: c.TTY, Rows: c.Rows, Cols: c.Cols,
	}})
	if err != nil {
		select {
		case <-n.gone:
		case <-time.After(time.Second):
			return 0, fmt.Errorf("node %s: sending the command: %w", n.desc.Name, err)
		}
	}
	done := make(chan struct{})
	defer close(done)
	if c.Stdin != nil {
		go n.feed(c.Stdin, done)
	}
	if c.Resize != nil {
		go func() {
			for {
				select {
				case s := <-c.Resize:
					n.conn.Send(wire.Message{Type: wire.Resize, Rows: s.Rows, Cols: s.Cols})
				case <-done:
					return
				}
			}
		}()
	}
	m, err := n.await(ctx, limit, wire.Exited, fmt.Sprintf("the command did not end within %v: %s", c.Timeout, quote(c.Args)))
	if err != nil {
		return 0, err
	}
	e := m.Exit
	if e.Error != "" {
		// The user reads, on the command's own standard error, why it did
		// not start; the status is the shell's for that.
		if c.Stderr != nil {
			fmt.Fprintln(c.Stderr, e.Error)
		}
		return e.Status, nil
	}
	for _, s := range []struct {
		name string
		st   *stream
		size int64
	}{{"standard output", n.stdout, e.Stdout}, {"standard error", n.stderr, e.Stderr}} {
		if err := s.st.await(s.size, drainLimit*time.Duration(n.opts.Slow)); err != nil {
			return e.Status, fmt.Errorf("node %s: %s: %w", n.desc.Name, s.name, err)
		}
	}
	if e.Left != "" {
		return e.Status, n.hung("processes that SIGKILL does not end hold the command's output: " + e.Left)
	}
	return e.Status, nil
}

// Signal sends a signal to the process group of the command that runs on a
// node, if any does.
func (v *VM) Signal(node string, sig syscall.Signal) error {
	n, err := v.node(node)
	if err != nil {
		return err
	}
	return n.conn.Send(wire.Message{Type: wire.Signal, Signal: int(sig)})
}

// feed forwards standard input and says where it ends.
func (n *node) feed(r io.Reader, done <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		got, err := r.Read(buf)
		if got > 0 {
			sent, werr := n.stdin.Write(buf[:got])
			n.fed.Add(int64(sent))
			if werr != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	select {
	case <-done:
	default:
		n.conn.Send(wire.Message{Type: wire.EOF, Size: n.fed.Load()})
	}
}

// stream receives one output stream of a node's commands.
type stream struct {
	mu   sync.Mutex
	cond *sync.Cond
	sink io.Writer
	n    int64
	err  error // of the sink
	end  bool
}

func newStream(c net.Conn) *stream {
	s := &stream{}
	s.cond = sync.NewCond(&s.mu)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			s.mu.Lock()
			if n > 0 {
				if s.sink != nil && s.err == nil {
					_, s.err = s.sink.Write(buf[:n])
				}
				s.n += int64(n)
			}
			s.end = err != nil
			s.cond.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// reset prepares for the next command.
func (s *stream) reset(sink io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink, s.n, s.err = sink, 0, nil
}

// await waits until size bytes have come.
func (s *stream) await(size int64, limit time.Duration) error {
	timer := time.AfterFunc(limit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer timer.Stop()
	deadline := time.Now().Add(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.n < size && !s.end && time.Now().Before(deadline) {
		s.cond.Wait()
	}
	if s.n != size {
		return fmt.Errorf("got %d of %d bytes", s.n, size)
	}
	return s.err
}
