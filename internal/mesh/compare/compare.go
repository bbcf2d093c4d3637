// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// NIC is the place of a NIC: its node, and its number there. NICs of all nodes with one number are a rail.
type NIC struct{ Node, Rail int }

// Link is what was measured between two NICs. A value of 0 was not measured.
type Link struct {
	A, B    int     // numbers of NICs
	Out, In float64 // bytes a second from A to B, and from B to A
	Latency float64 // nanoseconds
}

// Measure is what a NIC is compared by.
type Measure string

// The measures.
const (
	Send    Measure = "send"    // bytes a second that leave the NIC
	Receive Measure = "receive" // bytes a second that arrive at it
	Latency Measure = "latency" // nanoseconds of one operation, whichever side posts it
)

// Scope is what a finding is about.
type Scope string

// The scopes.
const (
	OfNode Scope = "node" // all measured NICs of a node
	OfRail Scope = "rail" // at least three quarters of the NICs of a rail
	OfNIC  Scope = "nic"
)

// Finding is a node, a rail or a NIC that is slow.
type Finding struct {
	Scope   Scope
	Node    int // -1 for a rail
	Rail    int // -1 for a node
	Measure Measure
	Value   float64 // the median of its links; of a node or a rail, the median of its NICs' medians
	Median  float64 // that of all NICs
	Spread  float64 // of all NICs: the median of the distances to Median, times 1.4826
	Links   int     // that Value is of
}

// Factor is how many times slower than the median a finding is: more than 1.
func (f *Finding) Factor() float64 {
	if f.Measure == Latency {
		return f.Value / f.Median
	}
	return f.Median / f.Value
}

// The rule. A NIC is slow if all of this holds:
//   - the median of its links is further from the median of all NICs than Spreads times their spread;
//   - it is at least the tolerance of Find slower: the spread of NICs that are all alike is nearly 0;
//   - nine of ten of its links are slower than the median of all NICs: where links vary much by chance,
//     so do the medians of a few of them.
const (
	// LeastNodes is the number of nodes with which one can be told from its peers: of three nodes with a
	// slow one, two of three links are slow, and each node has one of them.
	LeastNodes = 4
	// LeastPeers is the number of other nodes to which a NIC must have links.
	LeastPeers = 3
	// Spreads is the distance in spreads.
	Spreads = 4
)

// Report is what Find has found.
type Report struct {
	Findings []Finding
	// Unknown says why some were not compared; it is empty if all were.
	Unknown []string
}

// values are the links of a NIC by a measure.
type values struct {
	list  []float64
	peers map[int]bool // nodes
}

// Find names what is slow. tolerance is the part of the median that a NIC may be worse, such as 0.2. It must
// be more than 0 and less than 1.
func Find(nics []NIC, links []Link, tolerance float64) (r Report) {
	measures := map[string][]string{} // by the reason why they were not compared
	var reasons []string
	for _, m := range []Measure{Send, Receive, Latency} {
		why := r.by(m, nics, links, tolerance)
		if why == "" {
			continue
		}
		if measures[why] == nil {
			reasons = append(reasons, why)
		}
		measures[why] = append(measures[why], string(m))
	}
	for _, why := range reasons {
		r.Unknown = append(r.Unknown, strings.Join(measures[why], ", ")+": "+why)
	}
	return r
}

// by compares by one measure, and returns why some NICs were not compared.
func (r *Report) by(m Measure, nics []NIC, links []Link, tolerance float64) (why string) {
	all := gather(m, nics, links)
	medians := make([]float64, len(nics)) // 0: not known
	var known []float64
	nodes := map[int]bool{}
	few := 0
	for i, v := range all {
		if len(v.list) == 0 {
			continue
		}
		nodes[nics[i].Node] = true
		if len(v.peers) < LeastPeers {
			few++
			continue
		}
		medians[i] = Median(v.list)
		known = append(known, medians[i])
	}
	switch {
	case len(nodes) == 0:
		return "nothing was measured"
	case len(nodes) < LeastNodes:
		return fmt.Sprintf("%d nodes were measured: which one of a slow link's two ends is slow shows among %d or more", len(nodes), LeastNodes)
	case few > 0:
		why = fmt.Sprintf("%d of %d NICs have links to fewer than %d other nodes, and were not compared", few, len(nics), LeastPeers)
	}
	if len(known) == 0 {
		return why
	}
	median := Median(known)
	spread := 1.4826 * deviation(known, median)
	slow := func(nic int) bool {
		v, worse := medians[nic], 0
		for _, x := range all[nic].list {
			if m == Latency && x > median || m != Latency && x < median {
				worse++
			}
		}
		if 10*worse < 9*len(all[nic].list) {
			return false
		}
		if m == Latency {
			// A latency may be tolerance slower as a rate may: 1/(1-tolerance) times as long.
			return v-median > Spreads*spread && v*(1-tolerance) > median
		}
		return median-v > Spreads*spread && median-v > tolerance*median
	}
	f := finder{nics: nics, medians: medians, slow: slow, make: func(s Scope, node, rail int, of []int) Finding {
		var list []float64
		n := 0
		for _, i := range of {
			list = append(list, medians[i])
			n += len(all[i].list)
		}
		return Finding{Scope: s, Node: node, Rail: rail, Measure: m, Value: Median(list), Median: median, Spread: spread, Links: n}
	}}
	r.Findings = append(r.Findings, f.find()...)
	return why
}

// gather returns the values of each NIC.
func gather(m Measure, nics []NIC, links []Link) []values {
	all := make([]values, len(nics))
	add := func(to, peer int, v float64) {
		if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
			return
		}
		if all[to].peers == nil {
			all[to].peers = map[int]bool{}
		}
		all[to].list = append(all[to].list, v)
		all[to].peers[nics[peer].Node] = true
	}
	for _, l := range links {
		switch m {
		case Send:
			add(l.A, l.B, l.Out)
			add(l.B, l.A, l.In)
		case Receive:
			add(l.A, l.B, l.In)
			add(l.B, l.A, l.Out)
		case Latency:
			add(l.A, l.B, l.Latency)
			add(l.B, l.A, l.Latency)
		}
	}
	return all
}

// finder names nodes and rails in place of their NICs.
type finder struct {
	nics    []NIC
	medians []float64
	slow    func(nic int) bool
	make    func(s Scope, node, rail int, of []int) Finding
}

func (f *finder) find() (list []Finding) {
	byNode, byRail := map[int][]int{}, map[int][]int{}
	var slow []int
	nodes, rails := 0, 0
	for i, n := range f.nics {
		nodes, rails = max(nodes, n.Node+1), max(rails, n.Rail+1)
		if f.medians[i] == 0 {
			continue
		}
		byNode[n.Node], byRail[n.Rail] = append(byNode[n.Node], i), append(byRail[n.Rail], i)
		if f.slow(i) {
			slow = append(slow, i)
		}
	}
	named := map[int]bool{}
	// name names a group in place of its slow NICs.
	name := func(s Scope, node, rail int, group []int) {
		var of []int
		for _, i := range group {
			if slices.Contains(slow, i) {
				of = append(of, i)
				named[i] = true
			}
		}
		list = append(list, f.make(s, node, rail, of))
	}
	count := func(group []int) (n int) {
		for _, i := range group {
			if slices.Contains(slow, i) && !named[i] {
				n++
			}
		}
		return n
	}
	for rail := range rails {
		if group := byRail[rail]; rails > 1 && len(group) >= LeastNodes && 4*count(group) >= 3*len(group) {
			name(OfRail, -1, rail, group)
		}
	}
	for node := range nodes {
		if group := byNode[node]; len(group) > 0 && count(group) == len(group) {
			name(OfNode, node, -1, group)
		}
	}
	for _, i := range slow {
		if !named[i] {
			list = append(list, f.make(OfNIC, f.nics[i].Node, f.nics[i].Rail, []int{i}))
		}
	}
	return list
}

// Median is the value in the middle; of an even number of values, the mean of the two there. There must be
// one.
func Median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// deviation is the median of the distances to the median.
func deviation(list []float64, median float64) float64 {
	distances := make([]float64, len(list))
	for i, v := range list {
		distances[i] = math.Abs(v - median)
	}
	return Median(distances)
}
