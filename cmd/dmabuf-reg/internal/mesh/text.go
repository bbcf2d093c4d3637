// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/internal/mesh/compare"
)

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	there := 0
	for i := range r.Nodes {
		if r.nicsOf(i) > 0 {
			there++
		}
	}
	fmt.Fprintf(w, "nodes:   %d, of which %d have NICs that take part: %s\n", len(r.Nodes), there, human.Plural(len(r.NICs), "NIC"))
	which := "each NIC with each NIC of the other nodes"
	if r.Plan.SameRail {
		which = "each NIC with those at the same place of the other nodes"
	}
	fmt.Fprintf(w, "pairs:   %d, %s, in %s; took %s\n", len(r.Links), which, human.Plural(r.Rounds, "round"), human.Duration(r.Elapsed))
	fmt.Fprintf(w, "each:    WRITE and READ of %s, %d under way, up to %s or %s in each direction\n\n",
		bytesize.Format(r.Plan.Size), r.Plan.Depth, bytesize.Format(r.Plan.Volume), human.Duration(r.Plan.Time))
	if err := r.matrix(w); err != nil {
		return err
	}
	if err := r.table(w); err != nil {
		return err
	}
	r.problems(w)
	return human.Line(w, r.last(), "\n", "    ")
}

// last is the last line: the verdict in words.
func (r *Result) last() string {
	bad, unknown := r.bad(), r.unknown()
	word, says := "PASS", "every pair is reached, and no node is slow"
	switch {
	case r.Interrupted:
		return "NO VERDICT: it was interrupted; " + strings.Trim(bad+", "+unknown, ", ")
	case bad != "":
		word, says = "FAIL", bad
		if unknown != "" {
			says += "; not known: " + unknown
		}
	case unknown != "":
		word, says = "UNKNOWN", "nothing bad is known; not known: "+unknown
	case len(r.Links) == 0:
		word, says = "UNKNOWN", "there are no pairs of NICs of two nodes"
	case len(r.NotCompared) > 0:
		says = "every pair is reached; whether a node is slow is not known"
	}
	return word + ": " + says
}

// mostRows is the number of rows of the table of NICs, beyond which it has only those that reach few others, or are slow.
const mostRows = 64

// table has a row for each NIC, with the medians of its links.
func (r *Result) table(w io.Writer) error {
	all := r.medians()
	rows := [][]string{{"NODE", "ADDRESS", "HOST", "NIC", "MEMORY", "PATH", "SENDS", "RECEIVES", "LATENCY", "REACHED"}}
	left := 0
	for i := range r.NICs {
		n, m := &r.NICs[i], &all[i]
		if len(r.NICs) > mostRows && 10*m.reached >= 9*m.links && !r.named(i) {
			left++
			continue
		}
		node := &r.Nodes[n.Node]
		row := []string{fmt.Sprint(n.Node + 1), node.Addr, node.Host, n.Name, n.Memory, n.Path, human.Rate(m.send), human.Rate(m.receive), "", fmt.Sprintf("%d of %d", m.reached, m.links)}
		if m.latency > 0 {
			row[8] = human.Duration(time.Duration(m.latency))
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		if err := human.Table(w, rows, "HOST", "ADDRESS"); err != nil {
			return err
		}
	}
	if left > 0 {
		fmt.Fprintf(w, "and %s that reached nine of ten others or more, and are not slow: --json has them\n", human.Plural(left, "NIC"))
	}
	return nil
}

// median is what a NIC's links have: medians, 0 where nothing was measured.
type median struct {
	send, receive, latency float64
	links, reached         int
}

func (r *Result) medians() []median {
	type values struct{ send, receive, latency []float64 }
	lists, all := make([]values, len(r.NICs)), make([]median, len(r.NICs))
	add := func(to *[]float64, v float64) {
		if v > 0 {
			*to = append(*to, v)
		}
	}
	for i := range r.Links {
		l := &r.Links[i]
		for _, side := range []struct {
			nic       int
			out, into float64
		}{{l.A, l.AtoB, l.BtoA}, {l.B, l.BtoA, l.AtoB}} {
			v := &lists[side.nic]
			add(&v.send, side.out)
			add(&v.receive, side.into)
			add(&v.latency, float64(l.Latency))
			all[side.nic].links++
			if l.State == mesh.Reached {
				all[side.nic].reached++
			}
		}
	}
	of := func(list []float64) float64 {
		if len(list) == 0 {
			return 0
		}
		return compare.Median(list)
	}
	for i, v := range lists {
		all[i].send, all[i].receive, all[i].latency = of(v.send), of(v.receive), of(v.latency)
	}
	return all
}

// named reports whether a NIC, its node or its rail is said to be slow.
func (r *Result) named(nic int) bool {
	n := r.NICs[nic]
	for _, s := range r.Slow {
		if (s.Node < 0 || s.Node == n.Node) && (s.Rail < 0 || s.Rail == n.Rail) {
			return true
		}
	}
	return false
}
