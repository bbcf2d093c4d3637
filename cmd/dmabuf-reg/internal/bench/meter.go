// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/histogram"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// meter measures.
type meter struct {
	*peer.Client
	f     *params
	turns []*turn
	list  []operation.Completion
	opens [][]*memory.Buffer // beside the station's own

	fills    int    // how often refresh was called
	furthest int64  // byte that it has written up to
	fill     []byte // the bytes that it writes, all with one value
}

// turn is a kind of memory, and what was measured with it.
type turn struct {
	kind string
	bufs []*memory.Buffer

	all     histogram.Histogram
	ops     int
	staged  int64     // bytes that were copied through host memory
	rates   []float64 // of each round
	medians []float64 // latency, of each round
	// What one operation takes, from the last turn: how many a slice has is
	// known before it begins, since the server's receives have to be ready.
	single, many time.Duration
}

// open makes a buffer of each kind that there can be.
func (m *meter) open(ctx context.Context, r *Result) error {
	for _, kind := range m.f.kinds {
		if kind == station.PathDirect && m.Path == station.PathMoved {
			kind = station.PathMoved // it is registered, and called what it is
		}
		bufs, why, err := m.of(ctx, kind)
		if err != nil {
			return err
		}
		if bufs == nil {
			r.NotTried = append(r.NotTried, buffer.NotTried{Spec: kind, Why: why, Remedy: "give another --gpu"})
			continue
		}
		m.turns = append(m.turns, &turn{kind: kind, bufs: bufs})
	}
	if len(m.turns) == 0 {
		return errors.New("none of the kinds of memory can be had: " + r.NotTried[0].Why)
	}
	return nil
}

// of is a buffer of a kind; nil if there can be none, and why.
func (m *meter) of(ctx context.Context, kind string) ([]*memory.Buffer, string, error) {
	if kind == m.Path {
		return m.Bufs, "", nil
	}
	var bufs []*memory.Buffer
	var err error
	switch {
	case kind == station.Host:
		bufs, err = m.AllocHost(m.Memory.Size)
	case m.OnHost():
		return nil, "the memory is host memory", nil
	case kind == station.PathDirect:
		return nil, m.Why, nil // it was tried
	default:
		bufs, err = m.Buffer(ctx, memory.StagedOnly)
	}
	if err == nil {
		m.opens = append(m.opens, bufs)
	}
	return bufs, "", err
}

func (m *meter) close() error {
	var errs []error
	for _, bufs := range m.opens {
		// Operations that were in flight when the connection broke end here.
		errs = append(errs, memory.ReleaseAll(bufs))
	}
	return errors.Join(errs...)
}

// measure lets the kinds take turns, each beginning as often as the others.
func (m *meter) measure(ctx context.Context, op talk.Op, size int64) ([]benchPoint, error) {
	for _, t := range m.turns {
		*t = turn{kind: t.kind, bufs: t.bufs}
		// Warm up, and learn how long it takes.
		if err := m.turn(ctx, t, op, size, &histogram.Histogram{}); err != nil {
			return nil, err
		}
		*t = turn{kind: t.kind, bufs: t.bufs, single: t.single, many: t.many}
	}
	for round := range m.f.rounds {
		for i := range m.turns {
			t := m.turns[(round+i)%len(m.turns)]
			if err := m.turn(ctx, t, op, size, &t.all); err != nil {
				return nil, err
			}
		}
	}
	var points []benchPoint
	first := m.turns[0]
	for _, t := range m.turns {
		points = append(points, benchPoint{
			Op: op.String(), Size: size, Kind: t.kind,
			Latency: latency{
				Samples: int(t.all.Count()), P25: t.all.Quantile(250), P50: t.all.Quantile(500), P75: t.all.Quantile(750), P90: t.all.Quantile(900), P99: t.all.Quantile(990),
				P999: t.all.Quantile(999), Max: t.all.Max(), Ratio: ratios(t.medians, first.medians),
			},
			StagedBytes: t.staged,
			Bandwidth:   bandwidth{Operations: t.ops, Rate: spreadOf(t.rates), Ratio: ratios(t.rates, first.rates)},
		})
	}
	return points, nil
}

func ratios(list, to []float64) spread {
	var r []float64
	for i := range min(len(list), len(to)) {
		if to[i] > 0 {
			r = append(r, list[i]/to[i])
		}
	}
	return spreadOf(r)
}

// turn is one slice of single operations, and one of many at a time.
func (m *meter) turn(ctx context.Context, t *turn, op talk.Op, size int64, h *histogram.Histogram) error {
	return m.Within(ctx, "measure "+op.String(), func(ctx context.Context) error {
		before := m.Copied()
		defer func() { t.staged += m.Copied() - before }()
		var own histogram.Histogram
		n := m.fit(t.single)
		took, err := m.ops(ctx, t, op, size, n, 1, 1, func(d time.Duration) { own.Add(d); h.Add(d) })
		if err != nil {
			return err
		}
		t.single = took / time.Duration(n)
		t.medians = append(t.medians, float64(own.Quantile(500)))
		n = m.fit(t.many)
		if took, err = m.ops(ctx, t, op, size, n, m.f.depth, m.f.batch, nil); err != nil {
			return err
		}
		t.many = took / time.Duration(n)
		t.ops += n
		t.rates = append(t.rates, float64(size)*float64(n)/took.Seconds())
		return nil
	})
}

// fit is how many operations of that length a slice has.
func (m *meter) fit(each time.Duration) int {
	if each <= 0 {
		return min(4, m.AtOnce)
	}
	return int(min(max(1, m.f.slice/each), 1<<16))
}

// ops carries out n operations and returns how long they took, without what the
// server needs to get ready.
func (m *meter) ops(ctx context.Context, t *turn, op talk.Op, size int64, n, depth, batch int, each func(time.Duration)) (total time.Duration, err error) {
	most := n
	if op == talk.Send {
		most = m.AtOnce
	}
	for n > 0 {
		w := talk.Work{Size: size, Count: min(n, most)}
		w.Slots = int(min(int64(w.Count), min(m.Buf.Size(), m.Server.Size)/size))
		if op != talk.Read {
			w.Count = w.Slots // of each kind, as what is sent must not change meanwhile
		}
		if t.kind == station.PathStaged && op != talk.Read {
			// Bytes that have not changed since the last time would not be copied again.
			if err := m.refresh(size * int64(w.Slots)); err != nil {
				return 0, err
			}
		}
		if op == talk.Send {
			if _, err := m.Ask(ctx, talk.Request{Kind: talk.Receive, Work: w}); err != nil {
				return 0, err
			}
		}
		took, err := m.stream(ctx, t.bufs, op, w, depth, batch, each)
		if err != nil {
			return 0, err
		}
		total += took
		n -= w.Count
	}
	return total, nil
}

// fillChunk is how much refresh writes in one call.
const fillChunk = 64 << 10

// refresh changes each of the memory's first n bytes, as a GPU does whose results are to
// be sent. It is not part of the time.
func (m *meter) refresh(n int64) error {
	m.fills++
	m.furthest = max(m.furthest, n)
	if m.fills%128 == 0 {
		n = m.furthest // so that nothing is as old as 255 fills, after which they repeat
	}
	if m.fill == nil {
		m.fill = make([]byte, fillChunk)
	}
	for i := range m.fill {
		m.fill[i] = byte(m.fills%255) + 1
	}
	for off := int64(0); off < n; off += fillChunk {
		if _, err := m.WriteSource(m.fill[:min(fillChunk, n-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// stream keeps depth operations under way; batch of them are posted together.
func (m *meter) stream(ctx context.Context, bufs []*memory.Buffer, op talk.Op, w talk.Work, depth, batch int, each func(time.Duration)) (time.Duration, error) {
	start := time.Now()
	last := start
	for posted, done := 0, 0; done < w.Count; {
		// Where a batch has room, or nothing else can be done.
		for room := min(depth-(posted-done), w.Count-posted); room > 0 && (room >= min(batch, w.Count-posted) || posted == done); {
			n := min(room, batch)
			for i := range n {
				flags := operation.FlagMore
				if i == n-1 {
					flags = 0
				}
				if err := m.Post(op, bufs, w, posted, flags); err != nil {
					return 0, err
				}
				posted++
			}
			room -= n
		}
		n, err := m.Link.Take(ctx, m.list)
		if err != nil {
			return 0, err
		}
		for _, c := range m.list[:n] {
			if c.Err != nil {
				return 0, c.Err
			}
		}
		done += n
		if each != nil {
			now := time.Now()
			each(now.Sub(last))
			last = now
		}
	}
	return time.Since(start), nil
}
