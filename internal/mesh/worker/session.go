// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
)

// session is what one coordinator has ordered.
type session struct {
	*Worker
	conn *control.Conn
	ctx  context.Context // ends with the coordinator's connection

	hosts    []string // the roster
	self     int
	ordered  int // measurements
	mu       sync.Mutex
	running  map[control.Token]*task
	measured sync.WaitGroup
}

// task is what a NIC does for a token.
type task struct {
	end     context.CancelFunc
	done    chan struct{}
	outcome *control.Outcome // once done is closed
}

// session serves a coordinator until it has hung up, or ctx ends. Then it ends all that is measured.
func (w *Worker) session(ctx context.Context, conn *control.Conn) {
	inner, cancel := context.WithCancel(ctx)
	s := &session{Worker: w, conn: conn, ctx: inner, running: map[control.Token]*task{}}
	stop := context.AfterFunc(inner, func() { _ = conn.Close() })
	w.Tell("the coordinator at %v has this worker", conn.RemoteAddr())
	err := s.serve()
	ended := ctx.Err() != nil
	cancel()
	stop()
	_ = conn.Close()
	s.measured.Wait()
	w.leave()
	switch {
	case ended:
		w.Tell("this worker ends, after %[2]d measurements for the coordinator at %[1]v", conn.RemoteAddr(), s.ordered)
	case errors.Is(err, io.EOF):
		w.Tell("the coordinator at %v is done: %d measurements", conn.RemoteAddr(), s.ordered)
	default:
		w.Tell("the connection of the coordinator at %v has ended after %d measurements: %v", conn.RemoteAddr(), s.ordered, err)
	}
}

func (s *session) serve() error {
	for {
		m, err := s.conn.Receive(s.silence())
		if err != nil {
			return err
		}
		if err := s.order(m); err != nil {
			return err
		}
	}
}

// order carries out an order. An error ends the session.
func (s *session) order(m *control.Message) error {
	switch {
	case m.Ping:
		return s.conn.Send(&control.Message{ID: m.ID})
	case m.Roster != nil:
		return s.answer(m.ID, nil, s.takeRoster(m.Roster))
	case m.Expect != nil:
		return s.expect(m.ID, m.Expect)
	case m.Measure != nil:
		return s.measure(m.ID, m.Measure)
	case m.Release != nil:
		return s.release(m.ID, m.Release.Token)
	}
	return fmt.Errorf("the coordinator says hello again: %w", control.ErrMalformed)
}

// answer answers an order.
func (s *session) answer(id uint64, o *control.Outcome, f *control.Fault) error {
	return s.conn.Send(&control.Message{ID: id, Outcome: o, Fault: f})
}

func invalid(format string, args ...any) *control.Fault {
	return &control.Fault{Cause: control.Invalid, Text: fmt.Sprintf(format, args...)}
}

func (s *session) takeRoster(r *control.Roster) *control.Fault {
	if s.hosts != nil {
		return invalid("the list of nodes was given before, and does not change")
	}
	s.hosts, s.self = r.Hosts, r.Self
	return nil
}

// nic returns a NIC that takes part.
func (s *session) nic(name string) (*probe.NIC, *control.Fault) {
	for _, n := range s.Members {
		if n.Name != name {
			continue
		}
		if n.Probe == nil {
			return nil, n.Fault
		}
		return n.Probe, nil
	}
	return nil, invalid("there is no NIC %q here", name)
}

// begin adds a task. There are at most as many as NICs: each NIC has one at a time, and one that waits.
func (s *session) begin(token control.Token) (*task, context.Context, *control.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.hosts == nil:
		return nil, nil, invalid("the coordinator has given no list of nodes")
	case s.running[token] != nil:
		return nil, nil, invalid("this measurement was ordered before")
	case len(s.running) >= 2*len(s.Members):
		return nil, nil, invalid("%d measurements are under way, which is all that %d NICs carry", len(s.running), len(s.Members))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	t := &task{end: cancel, done: make(chan struct{})}
	s.running[token] = t
	s.ordered++
	return t, ctx, nil
}

func (s *session) ended(t *task, o *control.Outcome) {
	t.end()
	t.outcome = o
	close(t.done)
}

// expect makes a NIC take a caller. The answer comes when the caller may call: the NIC may be in use before.
func (s *session) expect(id uint64, e *control.Expect) error {
	n, f := s.nic(e.NIC)
	if f != nil {
		return s.answer(id, nil, f)
	}
	t, ctx, f := s.begin(e.Token)
	if f != nil {
		return s.answer(id, nil, f)
	}
	s.measured.Go(func() {
		v, f := s.visit(ctx, n, e)
		if f != nil {
			s.ended(t, &control.Outcome{})
			s.forget(e.Token)
		}
		if err := s.answer(id, nil, f); err != nil {
			_ = s.conn.Close() // the session ends
		}
		if f != nil {
			return
		}
		// The caller has all of its steps, and this side's handshake, to come and go.
		bounded, end := context.WithTimeout(ctx, 10*e.Plan.Timeout+3*e.Plan.Time)
		defer end()
		s.ended(t, v.Serve(bounded))
	})
	return nil
}

// visit waits for a NIC, which then lets the caller in.
func (s *session) visit(ctx context.Context, n *probe.NIC, e *control.Expect) (*probe.Visit, *control.Fault) {
	limited, cancel := context.WithTimeout(ctx, e.Plan.Timeout)
	defer cancel()
	v, err := n.Expect(limited, e.Token, e.Plan)
	if err == nil {
		return v, nil
	}
	var f *control.Fault
	if !errors.As(err, &f) {
		f = &control.Fault{Cause: control.Other, Text: control.Text(err.Error())}
	}
	return nil, f
}

// measure makes a NIC call another one. The answer is what came of it.
func (s *session) measure(id uint64, m *control.Measure) error {
	n, f := s.nic(m.NIC)
	if f != nil {
		return s.answer(id, nil, f)
	}
	if m.To >= len(s.hosts) || m.To == s.self {
		return s.answer(id, nil, invalid("node %d is not another one of the %d of the list", m.To, len(s.hosts)))
	}
	t, ctx, f := s.begin(m.Token)
	if f != nil {
		return s.answer(id, nil, f)
	}
	s.measured.Go(func() {
		host := s.hosts[m.To]
		addr, f := s.allowed(ctx, host, m.Port)
		o := &control.Outcome{Fault: f}
		if f == nil {
			o = n.Measure(ctx, addr, host, m.Token, m.Plan)
		}
		s.ended(t, o)
		s.forget(m.Token)
		if err := s.answer(id, o, nil); err != nil {
			_ = s.conn.Close() // the session ends
		}
	})
	return nil
}

// allowed returns the address of a host of the list, if the worker may measure towards it.
func (s *session) allowed(ctx context.Context, host string, port int) (string, *control.Fault) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	if len(s.Allow) == 0 {
		return addr, nil
	}
	const step = "look at the address of the other node"
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return "", &control.Fault{Cause: probe.CauseOf(err), Step: step, Text: control.Text(err.Error())}
	}
	for _, ip := range ips {
		for _, p := range s.Allow {
			if p.Contains(ip.Unmap()) {
				return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
			}
		}
	}
	return "", &control.Fault{Cause: control.Refused, Step: step, Text: fmt.Sprintf("%v of %s is in no network that --allow of this worker has", ips, host)}
}

// release ends a task, and answers when its NIC is free.
func (s *session) release(id uint64, token control.Token) error {
	s.mu.Lock()
	t := s.running[token]
	s.mu.Unlock()
	if t == nil {
		return s.answer(id, &control.Outcome{}, nil)
	}
	t.end()
	s.measured.Go(func() {
		<-t.done
		s.forget(token)
		if err := s.answer(id, t.outcome, nil); err != nil {
			_ = s.conn.Close()
		}
	})
	return nil
}

func (s *session) forget(token control.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, token)
}
