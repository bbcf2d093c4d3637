// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// only returns the link of a mesh of two nodes with one NIC each.
func only(t *testing.T, r *Result) *Link {
	t.Helper()
	if len(r.Links) != 1 {
		t.Fatalf("%d links: %+v", len(r.Links), r)
	}
	return &r.Links[0]
}

// A fault between two NICs has a state, a cause and a text.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*world)
		state State
		cause control.Cause
		says  string
	}{
		{"a cut path", func(w *world) { w.nodes[0].nics[0].Cut(w.nodes[1].nics[0]) }, Unreached, control.Timeout, "transport retry counter exceeded"},
		{"the caller's port is down", func(w *world) { w.nodes[1].nics[0].SetPort(false) }, Unreached, control.Port, "port 1 is down"},
		{"the listener's port is down", func(w *world) { w.nodes[0].nics[0].SetPort(false) }, Unreached, control.Port, "port 1 is down"},
		{"a NIC that is taken out", func(w *world) { w.nodes[0].nics[0].Remove() }, Unreached, control.Port, ""},
		{"wrong bytes", func(w *world) {
			w.net.OnCorrupt(func(p fabrictest.Placement) int64 {
				if p.Size == 64 {
					return 8 * 9
				}
				return -1
			})
		}, Unreached, control.Corrupt, "1 of 64 bytes are wrong; the first one, at 9, is 0x"},
		{"wrong bytes of a long write", func(w *world) {
			w.net.OnCorrupt(func(p fabrictest.Placement) int64 {
				if p.Size > 4096 {
					return 0
				}
				return -1
			})
		}, Unreached, control.Corrupt, "1 of 65536 bytes are wrong"},
		{"no exchange", func(w *world) { w.net.CutExchanges(fabrictest.Reset) }, Unreached, control.NoRoute, "connect to 127.0.0.1"},
		{"late bytes", func(w *world) { w.net.OnPlace(func(fabrictest.Placement) time.Duration { return fabrictest.Held }) }, Reached, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			c.spoil(w)
			l := only(t, Run(t.Context(), w.config(t)))
			switch {
			case l.State != c.state || (l.Fault == nil) != (c.cause == ""):
				t.Errorf("%+v: %+v", l, l.Fault)
			case l.Fault != nil && (l.Fault.Cause != string(c.cause) || !strings.Contains(l.Fault.Step+": "+l.Fault.Text, c.says)):
				t.Errorf("%+v: %+v", l, l.Fault)
			case l.Fault != nil && (l.AtoB != 0 || l.BtoA != 0):
				t.Errorf("a rate of %+v", l)
			}
			w.net.OnPlace(nil)
		})
	}
}

// Small WRITEs pass, and full packets do not: the MTU is named. A failure after that is not `unreached`.
func TestFailsLater(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64
		begins int // bytes of the WRITE with which the time begins
		state  State
		cause  control.Cause
		step   string
	}{
		{"full packets", 32 << 10, 64, Unreached, control.SmallMTU, "a WRITE of full packets"}, // 64 KiB take 2 s
		{"the rate", 256 << 10, 100 << 10, Failed, control.Timeout, "measure the rate of WRITE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			a, b := w.nodes[0].nics[0], w.nodes[1].nics[0]
			b.SetRate(c.rate, 0) // the caller's: there is time to cut the path
			begun := make(chan struct{}, 1)
			w.net.OnPlace(func(p fabrictest.Placement) time.Duration {
				if p.Size >= c.begins {
					select {
					case begun <- struct{}{}:
					default:
					}
				}
				return 0
			})
			go func() {
				<-begun
				time.Sleep(testenv.Limit(500 * time.Millisecond)) // the other side answers the first WRITE meanwhile
				a.Cut(b)
			}()
			cfg := w.config(t)
			cfg.Plan.Size, cfg.Plan.Volume = 256<<10, 1<<30
			l := only(t, Run(t.Context(), cfg))
			if l.State != c.state || l.Fault == nil || l.Fault.Cause != string(c.cause) || l.Fault.Step != c.step {
				t.Errorf("%+v: %+v", l, l.Fault)
			}
		})
	}
}

// When the run is ended, measurements end, and the result has what there is.
func TestInterrupted(t *testing.T) {
	w := newWorld(t, 1, 1, 1, 1, 1, 1)
	for _, n := range w.nodes {
		n.nics[0].SetRate(1<<20, 0)
	}
	cfg := w.config(t)
	cfg.Plan.Volume, cfg.Plan.Time = 1<<30, testenv.Limit(20*time.Second)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cfg.Parallel = 2
	cfg.Plan.Small = 1
	go func() {
		for w.conns() == 0 { // no connection
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		end()
	}()
	r := Run(ctx, cfg)
	n := r.Count()
	if !r.Interrupted || n[Unknown] != 15 || len(r.Links) != 15 {
		t.Errorf("%s, interrupted %v", states(r), r.Interrupted)
	}
	for _, l := range r.Links {
		if l.Fault == nil || l.Fault.Cause != string(control.Stopped) {
			t.Errorf("%+v: %+v", l, l.Fault)
		}
	}
	// The workers are free again at once, and measure.
	cfg = w.config(t)
	cfg.Plan.Volume, cfg.Wait = 1, testenv.Limit(20*time.Second)
	if r := Run(t.Context(), cfg); states(r) != "15 reached" {
		t.Error(states(r))
	}
}

// The NICs of a worker that has not said whether they work take no part, and say why.
func TestNICWithFault(t *testing.T) {
	w := newWorldWith(t, func(w *worker.Worker) {
		if len(w.Members) == 2 {
			if err := w.Members[1].Probe.Close(); err != nil {
				t.Error(err)
			}
			w.Members[1].Probe, w.Members[1].Fault = nil, &control.Fault{Cause: control.NoGID, Step: "open", Text: "no usable GID"}
		}
	}, 2, 1)
	r := Run(t.Context(), w.config(t))
	if states(r) != "1 reached, 1 unknown" || r.NICs[1].Fault == nil || r.Matrix[0][1].State != Unknown || r.Matrix[0][1].Bad != 1 {
		t.Errorf("%s: %+v", states(r), r)
	}
}
