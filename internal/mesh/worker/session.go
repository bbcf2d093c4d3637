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

	id       control.Token // of this session
	hosts    []string      // the roster
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
func (w *Worker) session(ctx context.Context, conn *control.Conn, id control.Token) {
	inner, cancel := context.WithCancel(ctx)
	s := &session{Worker: w, conn: conn, id: id, ctx: inner, running: map[control.Token]*task{}}
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
		answer := &control.Message{ID: id, Fault: f}
		if f != nil {
			s.ended(t, &control.Outcome{})
			s.forget(e.Token)
		} else {
			answer.Permit = s.permit(e, n.Port())
		}
		if err := s.conn.Send(answer); err != nil {
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

// permit is for the caller that is expected: nil without TLS, or if the key of this worker signs none. The caller
// then refuses the call.
func (s *session) permit(e *control.Expect, port int) *control.Permit {
	if s.Protect.TLS == nil {
		return nil
	}
	p, err := control.Permitted(s.Protect.TLS, e.Caller, e.Token, port)
	if err != nil {
		s.Tell("no other worker can call this one: %v", err)
		return nil
	}
	return p
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
		addr, f := s.allowed(ctx, host, m)
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

// allowed returns the address of a host of the list, if the worker may measure towards it. No connection is made
// before that is certain.
func (s *session) allowed(ctx context.Context, host string, m *control.Measure) (string, *control.Fault) {
	const step = "look whether the other node may be called"
	if t := s.Protect.TLS; t != nil {
		if err := m.Permit.Verify(t, host, s.id, m.Token, m.Port); err != nil {
			return "", &control.Fault{Cause: control.Identity, Step: step, Text: control.Text(fmt.Sprintf("%s: %v", host, err))}
		}
	}
	port := strconv.Itoa(m.Port)
	if len(s.Allow) == 0 && s.Protect.TLS != nil {
		return net.JoinHostPort(host, port), nil
	}
	nets, which, err := s.networks()
	if err != nil {
		return "", &control.Fault{Cause: control.Other, Step: step, Text: control.Text(err.Error())}
	}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return "", &control.Fault{Cause: probe.CauseOf(err), Step: step, Text: control.Text(err.Error())}
	}
	for _, ip := range ips {
		for _, p := range nets {
			if p.Contains(ip.Unmap().WithZone("")) {
				return net.JoinHostPort(ip.String(), port), nil
			}
		}
	}
	return "", &control.Fault{Cause: control.Refused, Step: step, Text: control.Text(fmt.Sprintf("%v of %s is in no network %s", ips, host, which))}
}

// networks are those towards which the worker measures, if not all are. Which says where they are from.
func (s *session) networks() (nets []netip.Prefix, which string, err error) {
	switch {
	case len(s.Allow) > 0:
		return s.Allow, "that --allow of this worker has", nil
	case !s.Protect.AllowPlaintext:
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, "of this machine alone, and without TLS or --plaintext this worker measures towards no other", nil
	}
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			nets = append(nets, p.Masked())
		}
	}
	return nets, "that this worker's machine is in: without certificates it measures towards others only with --allow NETWORK", err
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
