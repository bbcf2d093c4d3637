// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
)

// member is a node whose worker the coordinator talks to.
type member struct {
	node    nodelist.Node
	conn    *control.Conn
	welcome *control.Welcome

	gone chan struct{} // closed when the worker is lost
	mu   sync.Mutex
	why  *control.Fault // why it is lost
	next uint64
	wait map[uint64]chan *control.Message // by the ID of an order
}

// join connects to a worker, and says hello. It tries again until the time is over if there is no answer, as the
// worker may begin later than the coordinator.
func (c *Config) join(ctx context.Context, node nodelist.Node) (*member, *control.Fault) {
	end := time.Now().Add(c.Wait)
	for {
		m, err := c.greet(ctx, node)
		if err == nil {
			return m, nil
		}
		f := &control.Fault{Cause: probe.CauseOf(err), Step: "talk to the worker", Text: control.Text(strings.ReplaceAll(err.Error(), "\n", "; "))}
		var theirs *control.Fault
		if errors.As(err, &theirs) {
			f = theirs
		}
		f.Text = hint(f)
		if !later(f) || time.Now().After(end) {
			return nil, f
		}
		select {
		case <-ctx.Done():
			return nil, f
		case <-time.After(retry):
		}
	}
}

// retry is the time between two attempts to reach a worker.
const retry = 300 * time.Millisecond

// later reports whether a worker that was not reached may be there later.
func later(f *control.Fault) bool {
	switch f.Cause {
	case control.Refused, control.Busy, control.NoRoute, control.Gone:
		return true
	}
	return false
}

// hint adds what to change.
func hint(f *control.Fault) string {
	switch f.Cause {
	case control.Refused:
		return f.Text + "; start `dmabuf-reg mesh --worker` there"
	case control.Gone:
		return f.Text + "; see whether it is `dmabuf-reg mesh --worker`, and what its stderr says"
	}
	return f.Text
}

func (c *Config) greet(ctx context.Context, node nodelist.Node) (_ *member, err error) {
	limited, cancel := context.WithTimeout(ctx, c.Plan.Timeout)
	defer cancel()
	conn, err := control.Dial(limited, node.Addr(), node.Host, c.Protect, c.Silence)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.Send(&control.Message{Hello: &control.Hello{Protocol: control.Protocol, Version: control.Version, Release: c.Release}}); err != nil {
		return nil, err
	}
	answer, err := conn.Receive(c.Plan.Timeout)
	switch {
	case isTimeout(err):
		return nil, &control.Fault{Cause: control.Timeout, Step: "talk to the worker", Text: fmt.Sprintf("it has not answered within %v: it hangs, its host is busy, or it is another program", c.Plan.Timeout)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		return nil, fmt.Errorf("the worker hung up and gave no reason: %w", unix.ECONNRESET)
	case err != nil:
		return nil, err
	case answer.Fault != nil:
		return nil, answer.Fault
	case answer.Welcome == nil:
		return nil, fmt.Errorf("the worker has not said what it has: %w", control.ErrMalformed)
	}
	if err := answer.Welcome.Same(c.Release); err != nil {
		return nil, err
	}
	return &member{node: node, conn: conn, welcome: answer.Welcome, gone: make(chan struct{}), wait: map[uint64]chan *control.Message{}}, nil
}

// read takes the worker's answers until the connection ends, and tells lost when it has.
func (m *member) read(silence time.Duration, lost func(*member)) {
	for {
		answer, err := m.conn.Receive(silence)
		if err != nil {
			m.lose(brief(err, silence))
			lost(m)
			return
		}
		m.mu.Lock()
		to, known := m.wait[answer.ID]
		delete(m.wait, answer.ID)
		m.mu.Unlock()
		switch {
		case !known:
			m.lose(&control.Fault{Cause: control.Other, Text: "the worker has answered an order that it was not given"})
		case to != nil:
			to <- answer
		}
	}
}

func isTimeout(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}

// brief says why a connection to a worker has ended.
func brief(err error, silence time.Duration) *control.Fault {
	switch {
	case isTimeout(err):
		return &control.Fault{Cause: control.Timeout, Text: fmt.Sprintf("the worker has said nothing for %v: it hangs, or its host is lost", silence)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &control.Fault{Cause: control.Gone, Text: "the worker has ended, or has given this coordinator up: its stderr says which"}
	}
	return &control.Fault{Cause: control.Gone, Text: control.Text(strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// lose gives the worker up.
func (m *member) lose(why *control.Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != nil {
		return
	}
	m.why = why
	close(m.gone)
	_ = m.conn.Close()
}

// lost returns why the worker is lost; nil if it is not.
func (m *member) lost() *control.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// post sends an order. The answer goes to a channel, or nowhere if that is nil.
func (m *member) post(order *control.Message, to chan *control.Message) error {
	m.mu.Lock()
	m.next++
	order.ID = m.next
	m.wait[order.ID] = to
	m.mu.Unlock()
	return m.conn.Send(order)
}

// order gives an order, and waits for the answer. A worker that does not answer within the limit is lost.
func (m *member) order(ctx context.Context, order *control.Message, limit time.Duration) (*control.Message, *control.Fault) {
	to := make(chan *control.Message, 1)
	if err := m.post(order, to); err != nil {
		m.lose(brief(err, limit))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case answer := <-to:
		if answer.Fault != nil {
			return nil, answer.Fault
		}
		return answer, nil
	case <-m.gone:
		return nil, m.lost()
	case <-ctx.Done():
		return nil, &control.Fault{Cause: control.Stopped, Text: "the run was ended"}
	case <-timer.C:
		m.lose(&control.Fault{Cause: control.Timeout, Text: fmt.Sprintf("the worker has not answered an order within %v", limit)})
		return nil, m.lost()
	}
}

// ping asks the worker for a sign of life, again and again, until it is lost or ctx ends.
func (m *member) ping(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := m.post(&control.Message{Ping: true}, nil); err != nil {
				m.lose(brief(err, every))
				return
			}
		case <-m.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}
