// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// small is the size of the first WRITE, which any MTU lets pass, and tiny that of the latency.
const (
	small = 64
	tiny  = 8
)

// call is a measurement in which a NIC calls.
type call struct {
	nic    *NIC
	token  control.Token
	plan   control.Plan
	conn   *gpurdma.Conn
	remote gpurdma.Remote
	o      *control.Outcome
	err    error // of the step that failed
}

// Measure calls the NIC at an address, and measures: first whether bytes arrive, then latency, then the
// rates. host is the name that the other side's certificate has to have.
func (n *NIC) Measure(ctx context.Context, addr, host string, token control.Token, p control.Plan) *control.Outcome {
	m := &call{nic: n, token: token, plan: p, o: new(control.Outcome)}
	if err := n.use(ctx); err != nil {
		m.o.Fault = faultOf("", err)
		return m.o
	}
	defer n.free()
	cfg := n.cfg
	cfg.Hello, cfg.ConnectTimeout = []byte(token), p.Timeout
	if cfg.TLS != nil {
		cfg.TLS = cfg.TLS.Clone()
		cfg.TLS.ServerName = host
	}
	if !m.step(ctx, p.Timeout, "connect to "+addr, func(ctx context.Context) (err error) {
		m.conn, err = n.fab.Dial(ctx, addr, cfg)
		return err
	}) {
		return m.o
	}
	m.o.Over = control.Text(m.conn.String())
	if m.reach(ctx) {
		m.o.Reached = true
		_ = m.latency(ctx) && m.rate(ctx, gpurdma.OpWrite, &m.o.Out, "measure the rate of WRITE") && m.rate(ctx, gpurdma.OpRead, &m.o.In, "measure the rate of READ")
	}
	if err := m.conn.Close(); err != nil && m.o.Fault == nil {
		m.o.Fault = faultOf("end the connection", err)
	}
	return m.o
}

// step carries out one step within its time. If it fails, step keeps why, and returns false.
func (m *call) step(ctx context.Context, limit time.Duration, what string, do func(context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(limited)
	if err == nil {
		return true
	}
	m.err, m.o.Fault = err, faultOf(what, err)
	if ctx.Err() != nil {
		m.o.Fault.Cause = control.Stopped
	}
	return false
}

// reach writes bytes there, has them verified, and reads them back.
func (m *call) reach(ctx context.Context) bool {
	if !m.step(ctx, m.plan.Timeout, "get the memory of the other side", func(ctx context.Context) (err error) {
		m.remote, err = m.conn.Import(ctx, exported)
		return err
	}) {
		return false
	}
	most := min(m.remote.Size(), m.nic.buf.Size())
	if !m.write(ctx, min(small, most), "the first WRITE") {
		return false
	}
	large := min(verifyMost, most)
	if !m.write(ctx, large, "a WRITE of full packets") {
		if errors.Is(m.err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			m.o.Fault.Cause = control.SmallMTU
			m.o.Fault.Text = control.Text("a WRITE of 64 bytes was answered, and full packets are not: see whether a switch or a port on the way has a smaller MTU; " + m.o.Fault.Text)
		}
		return false
	}
	return m.step(ctx, m.plan.Timeout, "a READ", func(ctx context.Context) error {
		if _, err := m.nic.buf.WriteAt(make([]byte, large), 0); err != nil {
			return err
		}
		if err := m.conn.Read(ctx, m.nic.buf.Range(0, large), m.remote.Range(0, large)); err != nil {
			return err
		}
		if f := compare(m.nic.buf, pattern(m.token, large), "verify the bytes of a READ"); f != nil {
			return f
		}
		return nil
	})
}

// write writes the pattern, and waits for the verdict of the other side.
func (m *call) write(ctx context.Context, n int64, what string) bool {
	return m.step(ctx, m.plan.Timeout, what, func(ctx context.Context) error {
		if _, err := m.nic.buf.WriteAt(pattern(m.token, n), 0); err != nil {
			return err
		}
		note := binary.BigEndian.AppendUint64(nil, uint64(n))
		if err := m.conn.Write(ctx, m.remote.Range(0, n), m.nic.buf.Range(0, n), gpurdma.Notify(note)); err != nil {
			return err
		}
		verdict, err := m.conn.Receive(ctx)
		if err != nil {
			return err
		}
		if f := decode(verdict); f != nil {
			return f
		}
		return nil
	})
}

// latency times single WRITEs.
func (m *call) latency(ctx context.Context) bool {
	n := min(tiny, m.remote.Size(), m.nic.buf.Size())
	to, from := m.remote.Range(0, n), m.nic.buf.Range(0, n)
	var times []time.Duration
	ok := m.step(ctx, m.plan.Time+m.plan.Timeout, "measure the latency", func(ctx context.Context) error {
		end := time.Now().Add(m.plan.Time)
		for i := range m.plan.Small + 1 {
			begin := time.Now()
			if i > 1 && begin.After(end) {
				break
			}
			if err := m.conn.Write(ctx, to, from); err != nil {
				return err
			}
			if i > 0 { // the first one warms caches
				times = append(times, time.Since(begin))
			}
		}
		return nil
	})
	if len(times) > 0 {
		slices.Sort(times)
		m.o.Latency = control.Times{Count: len(times), P50: times[len(times)/2], P99: times[len(times)*99/100]}
	}
	return ok
}

// rate moves bytes with several operations under way.
func (m *call) rate(ctx context.Context, kind gpurdma.OpKind, r *control.Rate, what string) bool {
	size := min(m.plan.Size, m.remote.Size(), m.nic.buf.Size())
	ops := m.operations(kind, size)
	q := m.nic.fab.NewQueue(len(ops))
	defer q.Close()
	return m.step(ctx, m.plan.Time+m.plan.Timeout, what, func(ctx context.Context) error {
		done := make([]gpurdma.Completion, len(ops))
		begin := time.Now()
		end := begin.Add(m.plan.Time)
		var posted int64
		more := func() bool { return posted < m.plan.Volume && (posted == 0 || time.Now().Before(end)) }
		for under := 0; ; {
			for under < len(ops) && more() {
				if _, err := q.Post(m.conn, ops[under:under+1]); errors.Is(err, gpurdma.ErrQueueFull) && under > 0 {
					break
				} else if err != nil {
					return err
				}
				under++
				posted += size
			}
			if under == 0 {
				r.Time = time.Since(begin)
				return nil
			}
			n, err := q.Wait(ctx, done)
			if err != nil {
				return err
			}
			for _, d := range done[:n] {
				if d.Err != nil {
					return d.Err
				}
				r.Bytes += d.Len
			}
			r.Time = time.Since(begin)
			under -= n
		}
	})
}

// operations are as many as are under way at once, over different parts of the memory where there is room.
func (m *call) operations(kind gpurdma.OpKind, size int64) (list []gpurdma.Op) {
	parts := max(min(m.remote.Size(), m.nic.buf.Size())/size, 1)
	depth := min(int64(m.plan.Depth), max(m.plan.Volume/size, 1))
	for i := range depth {
		off := i % parts * size
		list = append(list, gpurdma.Op{Kind: kind, Local: m.nic.buf.Range(off, size), Remote: m.remote.Range(off, size)})
	}
	return list
}
