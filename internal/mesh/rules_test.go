// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
)

// A worker measures only towards the networks of Allow.
func TestAllow(t *testing.T) {
	for _, c := range []struct {
		network string
		state   State
	}{{"127.0.0.0/8", Reached}, {"10.0.0.0/8", Unreached}} {
		w := newWorldWith(t, func(w *worker.Worker) { w.Allow = []netip.Prefix{netip.MustParsePrefix(c.network)} }, 1, 1)
		l := only(t, Run(t.Context(), w.config(t)))
		if l.State != c.state || (c.state == Unreached) != (l.Fault != nil) {
			t.Errorf("%s: %+v: %+v", c.network, l, l.Fault)
		}
		if l.Fault != nil && (l.Fault.Cause != string(control.Refused) || !strings.Contains(l.Fault.Text, "in no network that --allow")) {
			t.Errorf("%+v", l.Fault)
		}
	}
}

// With Once a worker ends after its first coordinator.
func TestOnce(t *testing.T) {
	w := newWorldWith(t, func(w *worker.Worker) { w.Once = true }, 1, 1)
	if r := Run(t.Context(), w.config(t)); states(r) != "1 reached" {
		t.Error(states(r))
	}
	for _, n := range w.nodes { // the test's timeout ends it otherwise
		err := <-n.ended
		if err != nil {
			t.Error(err)
		}
		n.ended <- err
	}
}

// With SameRail only NICs at the same place are pairs; Parallel bounds how many are measured at once.
func TestSameRailAndParallel(t *testing.T) {
	w := newWorld(t, 2, 2, 2)
	c := w.config(t)
	c.SameRail, c.Parallel = true, 1
	most := 0
	c.Progress = func(int, int) { most = max(most, w.conns()) }
	r := Run(t.Context(), c)
	if states(r) != "6 reached" || r.Rounds != 3 {
		t.Errorf("%s in %d rounds", states(r), r.Rounds)
	}
	for _, l := range r.Links {
		if r.NICs[l.A].Rail != r.NICs[l.B].Rail {
			t.Errorf("%+v", l)
		}
	}
	if most > 2 {
		t.Errorf("%d ends of connections at once", most)
	}
}
