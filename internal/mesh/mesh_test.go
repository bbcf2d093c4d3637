// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"testing"
)

// Every pair of NICs is measured once, in both directions.
func TestMesh(t *testing.T) {
	w := newWorld(t, 2, 1, 3)
	r := Run(t.Context(), w.config(t))
	if got := states(r); got != "11 reached" || len(r.NICs) != 6 || r.Interrupted {
		t.Fatalf("%s: %+v", got, r)
	}
	for _, l := range r.Links {
		if l.AtoB <= 0 || l.BtoA <= 0 || l.Latency <= 0 || l.P99 < l.Latency || l.Over == "" || l.Fault != nil || r.NICs[l.A].Node >= r.NICs[l.B].Node {
			t.Errorf("%+v", l)
		}
	}
	for i, row := range r.Matrix {
		for j, c := range row {
			if i == j && c != (Cell{}) || i != j && (c.State != Reached || c.Rate <= 0 || c.Latency <= 0 || c.Bad != 0 || c.Links != len(w.nodes[i].nics)*len(w.nodes[j].nics)) {
				t.Errorf("%d, %d: %+v", i, j, c)
			}
		}
	}
	if len(r.NotCompared) != 1 || !strings.Contains(r.NotCompared[0], "3 nodes were measured") {
		t.Errorf("%q", r.NotCompared)
	}
	for _, n := range w.nodes {
		n.says(t, "is done: ")
	}
}
