// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// rail is one path of a connection, and what was done over it.
type rail struct {
	name   string
	up     bool
	counts workqueue.KindCounts // of all kinds
	lost   int                  // links
}

// railLines writes a line for each rail, with the rates since the lines before. On a terminal the lines
// take the place of those before.
type railLines struct {
	out    io.Writer
	redraw bool
	rails  func() []rail

	last  []rail
	at    time.Time
	drawn int // lines
}

// every is the time between the lines of --watch.
const every = time.Second

// begin keeps the counters that the first rates begin with.
func (m *railLines) begin(now time.Time) { m.last, m.at = m.rails(), now }

// draw writes the lines.
func (m *railLines) draw(now time.Time) {
	seconds := now.Sub(m.at).Seconds()
	rails, text := m.rails(), ""
	if m.redraw && m.drawn > 0 {
		text = fmt.Sprintf("\x1b[%dA", m.drawn)
	}
	for i, r := range rails {
		was := workqueue.KindCounts{}
		if i < len(m.last) {
			was = m.last[i].counts
		}
		if m.redraw {
			text += "\x1b[K"
		}
		text += r.line(&was, seconds) + "\n"
	}
	m.last, m.at, m.drawn = rails, now, len(rails)
	_, _ = io.WriteString(m.out, text)
}

// line is a rail in words, with the rates since its counters were others.
func (r *rail) line(was *workqueue.KindCounts, seconds float64) string {
	state, bytes := "up", "0 MB/s"
	if !r.up {
		state = "down"
	}
	operations := 0.0
	if seconds > 0 {
		// A rail that was made anew counts from 0.
		operations = max(0, float64(r.counts.Done())-float64(was.Done())) / seconds
		if n := r.counts.Bytes - was.Bytes; n > 0 {
			bytes = human.Rate(float64(n) / seconds)
		}
	}
	text := fmt.Sprintf("%s  %-4s  %9.0f operations/s  %12s  %s", r.name, state, operations, bytes, human.Plural(int(r.counts.Failed), "error"))
	if r.lost > 0 {
		text += ", " + human.Plural(r.lost, "link") + " lost"
	}
	return text
}

// run draws once a second until ctx ends, and then once more.
func (m *railLines) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			m.draw(now)
		case <-ctx.Done():
			m.draw(time.Now())
			return
		}
	}
}

// startWatch writes what a connection does until stop is called.
func startWatch(ctx context.Context, a *app.App, c *peer.Client) (stop func()) {
	m := &railLines{out: a.Stdout, rails: func() []rail { return watched(c.Link) }}
	if a.JSON {
		m.out = a.Stderr // stdout has the document
	}
	if f, ok := m.out.(*os.File); ok {
		m.redraw = term.IsTerminal(int(f.Fd()))
	}
	m.begin(time.Now())
	ctx, cancel := context.WithCancel(ctx)
	var task sync.WaitGroup
	task.Go(func() { m.run(ctx) })
	return func() {
		cancel()
		task.Wait()
	}
}

// watched returns the rails of a connection for --watch.
func watched(l link.Link) (list []rail) {
	states, err := l.Now()
	if err != nil {
		return nil
	}
	for _, r := range states {
		name := fmt.Sprintf("port %d of %s", r.Path.Port, r.Path.NIC)
		if r.Path.Port == 0 { // it was not made
			name = r.Path.NIC
		}
		list = append(list, rail{name: name, up: r.Up, counts: r.Counts, lost: r.Lost})
	}
	return list
}
