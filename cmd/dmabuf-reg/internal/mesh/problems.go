// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"io"
	"time"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/internal/mesh/compare"
)

// mostProblems is the number of lines of one kind.
const mostProblems = 20

// problems lists what is wrong, and what is not known.
func (r *Result) problems(w io.Writer) {
	r.list(w, len(r.Nodes), func(i int) string {
		n := &r.Nodes[i]
		switch {
		case n.Lost:
			return fmt.Sprintf("LOST node %d (%s) during the run: %s", i+1, n.Addr, words(n.Fault))
		case n.Fault != nil:
			return fmt.Sprintf("NO WORKER node %d (%s): %s", i+1, n.Addr, words(n.Fault))
		case r.nicsOf(i) == 0:
			return fmt.Sprintf("NO NIC node %d (%s): its worker has none", i+1, n.Addr)
		}
		return ""
	})
	r.list(w, len(r.NICs), func(i int) string {
		if r.NICs[i].Fault == nil {
			return ""
		}
		return fmt.Sprintf("NO PART %s: %s", r.nic(i), words(r.NICs[i].Fault))
	})
	r.list(w, len(r.Slow), func(i int) string { return r.slowness(&r.Slow[i]) })
	r.links(w, mesh.Unreached, "UNREACHED")
	r.links(w, mesh.Failed, "FAILED")
	r.unmeasured(w)
	for _, text := range r.NotCompared {
		fmt.Fprintln(w, human.Fold(text, "NOT COMPARED by ", "    "))
	}
}

// list writes lines, and how many more there are. An empty one is none.
func (r *Result) list(w io.Writer, n int, make func(i int) string) {
	written, more := 0, 0
	for i := range n {
		switch text := make(i); {
		case text == "":
		case written == mostProblems:
			more++
		default:
			written++
			fmt.Fprintln(w, human.Fold(text, "", "    "))
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "    and %d more: --json has all\n", more)
	}
}

// mostPeers is the number of links of one NIC that have lines of their own.
const mostPeers = 2

// links lists the links in a state. A NIC that has it with many others has one line, with the first reason.
func (r *Result) links(w io.Writer, state mesh.State, word string) {
	bad := map[int][]int{} // by NIC: links
	for i := range r.Links {
		if l := &r.Links[i]; l.State == state {
			bad[l.A], bad[l.B] = append(bad[l.A], i), append(bad[l.B], i)
		}
	}
	said := map[int]bool{}
	var lines []string
	left := func(nic int) (list []int) {
		for _, i := range bad[nic] {
			if !said[i] {
				list = append(list, i)
			}
		}
		return list
	}
	for {
		worst, most := -1, mostPeers
		for nic := range r.NICs {
			if n := len(left(nic)); n > most {
				worst, most = nic, n
			}
		}
		if worst < 0 {
			break
		}
		var peers []string
		list := left(worst)
		for _, i := range list {
			said[i] = true
			other := r.Links[i].A
			if other == worst {
				other = r.Links[i].B
			}
			peers = append(peers, fmt.Sprintf("%s of node %d", r.NICs[other].Name, r.NICs[other].Node+1))
		}
		lines = append(lines, fmt.Sprintf("%s %s with %s (%s); the first: %s", word, r.nic(worst), human.Plural(len(list), "NIC"), human.First(peers, 4), words(r.Links[list[0]].Fault)))
	}
	for i := range r.Links {
		l := &r.Links[i]
		if l.State != state || said[i] {
			continue
		}
		from, to := l.A, l.B
		if l.Caller == l.B {
			from, to = to, from
		}
		lines = append(lines, fmt.Sprintf("%s %s -> %s: %s", word, r.nic(from), r.nic(to), words(l.Fault)))
	}
	r.list(w, len(lines), func(i int) string { return lines[i] })
}

// unmeasured says why pairs were not measured, by reason.
func (r *Result) unmeasured(w io.Writer) {
	count := map[string]int{}
	var reasons []string
	for i := range r.Links {
		l := &r.Links[i]
		if l.State != mesh.Unknown && l.State != mesh.Lost || l.Fault == nil {
			continue
		}
		text := words(l.Fault)
		if count[text] == 0 {
			reasons = append(reasons, text)
		}
		count[text]++
	}
	r.list(w, len(reasons), func(i int) string {
		return fmt.Sprintf("NOT MEASURED %s: %s", human.Plural(count[reasons[i]], "pair"), reasons[i])
	})
}

// nic names a NIC.
func (r *Result) nic(i int) string {
	n := &r.NICs[i]
	return fmt.Sprintf("%s of node %d (%s)", n.Name, n.Node+1, r.Nodes[n.Node].Addr)
}

// words are those of a fault.
func words(f *mesh.Fault) string {
	if f == nil {
		return "no reason is known"
	}
	text := f.Text
	if f.Step != "" {
		text = f.Step + ": " + text
	}
	return text + " [" + f.Cause + "]"
}

// slowness says what is slow, how much, and on which side.
func (r *Result) slowness(s *mesh.Slow) string {
	what := ""
	switch compare.Scope(s.Scope) {
	case compare.OfNode:
		what = fmt.Sprintf("node %d (%s)", s.Node+1, r.Nodes[s.Node].Addr)
	case compare.OfRail:
		what = fmt.Sprintf("rail %d of all nodes", s.Rail+1)
	case compare.OfNIC:
		for i, n := range r.NICs {
			if n.Node == s.Node && n.Rail == s.Rail {
				what = r.nic(i)
			}
		}
	}
	if compare.Measure(s.Measure) == compare.Latency {
		d := func(ns float64) string { return human.Duration(time.Duration(ns)) }
		return fmt.Sprintf("SLOW %s has a latency of %s, %.2f times the median of all NICs (%s, spread %s); %s", what, d(s.Value), s.Factor, d(s.Median), d(s.Spread), human.Plural(s.Links, "link"))
	}
	verb := "sends"
	if compare.Measure(s.Measure) == compare.Receive {
		verb = "receives"
	}
	return fmt.Sprintf("SLOW %s %s %s, %.2f times slower than the median of all NICs (%s, spread %s); %s",
		what, verb, human.Rate(s.Value), s.Factor, human.Rate(s.Median), rate(s.Spread), human.Plural(s.Links, "link"))
}

// rate is a rate that may be 0.
func rate(perSecond float64) string {
	if text := human.Rate(perSecond); text != "" {
		return text
	}
	return "0 MB/s"
}
