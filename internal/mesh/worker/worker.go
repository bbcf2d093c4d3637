// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
	"github.com/gpurdma/gpurdma/internal/throttle"
)

// Member is a NIC of the worker, as it is described to coordinators.
type Member struct {
	control.NIC
	Probe *probe.NIC // nil if Fault says why it takes no part
}

// Worker is a node of a mesh. It must not be copied.
type Worker struct {
	Host    string // the machine's own name
	Release string // of the program
	Members []Member
	Protect control.Protection
	// Allow are networks towards which the worker measures. Without any these are, with TLS, all: the other worker
	// shows by its certificate that it expects the call; in plaintext those that this machine is in; else the loopback.
	Allow   []netip.Prefix
	Tell    func(format string, args ...any) // says what coordinators do
	Once    bool                             // Serve returns after the first coordinator
	Silence time.Duration                    // after which a silent coordinator is given up; default 30 s

	rejects throttle.Lines

	mu   sync.Mutex
	busy net.Addr // the coordinator that has the worker; nil if none has
}

// Bounds of callers.
const (
	places         = 32 // handshakes at once
	greetingTime   = 10 * time.Second
	defaultSilence = 30 * time.Second
)

// Serve serves coordinators until ctx ends. It closes the listener, and returns when nothing is measured any
// more.
func (w *Worker) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	s := handshake.Server{Pending: handshake.New(places), Timeout: greetingTime, OnReject: w.rejected}
	s.Handshake = func(limited context.Context, c *handshake.Caller) error {
		id := control.NewToken()
		conn, err := w.greet(limited, c, id)
		if err != nil {
			return err
		}
		sessions.Go(func() {
			w.session(ctx, conn, id)
			if w.Once {
				cancel(errOnce)
			}
		})
		return nil
	}
	s.Serve(ctx, l)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errOnce) {
		return err
	}
	return nil
}

var errOnce = errors.New("the first coordinator was served")

// greet makes a caller the coordinator that has the worker.
func (w *Worker) greet(ctx context.Context, c *handshake.Caller, id control.Token) (_ *control.Conn, err error) {
	c.Advance(handshake.TLS)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	protected, err := w.Protect.Protect(ctx, c, "", false)
	if err != nil {
		return nil, err
	}
	c.Advance(handshake.Hello)
	conn := control.NewConn(protected, true, greetingTime)
	m, err := conn.Receive(greetingTime)
	if err != nil {
		return nil, err
	}
	if m.Hello == nil {
		return nil, fmt.Errorf("the caller has not said hello: %w", control.ErrMalformed)
	}
	refuse := func(f *control.Fault) error {
		_ = conn.Send(&control.Message{ID: m.ID, Fault: f})
		return f
	}
	if err := m.Hello.Same(w.Release); err != nil {
		var f *control.Fault
		errors.As(err, &f)
		return nil, refuse(f)
	}
	if by := w.take(c.RemoteAddr()); by != nil {
		return nil, refuse(&control.Fault{Cause: control.Busy, Text: fmt.Sprintf("the coordinator at %v has this worker: wait until it has ended", by)})
	}
	defer func() {
		if err != nil {
			w.leave()
		}
	}()
	welcome := &control.Welcome{Hello: control.Hello{Protocol: control.Protocol, Version: control.Version, Release: w.Release}, Host: w.Host, Session: id}
	for _, n := range w.Members {
		welcome.NICs = append(welcome.NICs, n.NIC)
	}
	if err := conn.Send(&control.Message{ID: m.ID, Welcome: welcome}); err != nil {
		return nil, err
	}
	return conn, c.Connected()
}

// take gives the worker to a coordinator, or returns the one that has it.
func (w *Worker) take(by net.Addr) net.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy != nil {
		return w.busy
	}
	w.busy = by
	return nil
}

func (w *Worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = nil
}

// rejected prints a caller that did not become the coordinator.
func (w *Worker) rejected(from net.Addr, why error) {
	if more, ok := w.rejects.Next(); ok {
		w.Tell("%v was rejected%s: %v", from, more, why)
	}
}

func (w *Worker) silence() time.Duration { return cmp.Or(w.Silence, defaultSilence) }
