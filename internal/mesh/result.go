// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"time"

	"github.com/gpurdma/gpurdma/internal/mesh/compare"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// Result is what a mesh has found. NICs and nodes are named by their places in the lists.
type Result struct {
	Nodes       []Node   `json:"nodes"`        // the nodes, in the order of the list
	NICs        []NIC    `json:"nics"`         // the NICs of all nodes
	Links       []Link   `json:"links"`        // each pair of NICs of two nodes once, in the order of NICs
	Matrix      [][]Cell `json:"matrix"`       // by node and node: the links from the first to the second
	Slow        []Slow   `json:"slow"`         // the nodes, rails and NICs that are slower than their peers
	NotCompared []string `json:"not_compared"` // why nodes could not be compared; it is empty if all were
	// Rounds is the number of rounds in which the pairs fit, as each NIC has one peer at a time.
	Rounds      int           `json:"rounds"`
	Plan        Plan          `json:"plan"`        // how each pair was measured
	Elapsed     time.Duration `json:"elapsed_ns"`  // the time that the run took
	Interrupted bool          `json:"interrupted"` // a signal ended the run before all pairs were measured
}

// Node is a node of the list.
type Node struct {
	Addr  string `json:"addr"`            // the address of the node's worker
	Host  string `json:"host"`            // the machine's own name; "" if its worker was not reached
	Fault *Fault `json:"fault,omitempty"` // why the node has no worker, or is lost
	Lost  bool   `json:"lost"`            // the node was lost during the run
}

// NIC is a NIC of a node.
type NIC struct {
	Node   int    `json:"node"`   // the place of its node in the list of nodes, from 0 on
	Rail   int    `json:"rail"`   // its place in the node, from 0 on
	Name   string `json:"name"`   // the name of the NIC
	Memory string `json:"memory"` // the name of the memory: "host", "cuda:0"
	// Path is how the NIC reaches the memory: "host", "direct", "moved", "staged", or "unknown" if the
	// place of the bytes of a GPU was not looked at.
	Path  string `json:"path"`
	Why   string `json:"why"`             // the path and its reason, in words
	Fault *Fault `json:"fault,omitempty"` // why the NIC takes no part
}

// Plan is what was measured of each pair.
type Plan struct {
	Size     int64         `json:"size"`       // the bytes of an operation of the rate
	Depth    int           `json:"depth"`      // how many such operations are under way
	Volume   int64         `json:"volume"`     // the bytes that are moved in each direction, at most
	Time     time.Duration `json:"time_ns"`    // the time of each of latency, rate out and rate in, at most
	Timeout  time.Duration `json:"timeout_ns"` // the timeout of each step
	SameRail bool          `json:"same_rail"`  // only NICs with the same place in their nodes are measured
}

// State is what is known of two NICs, or of two nodes.
type State string

// The states, from the worst to the best.
const (
	Unreached State = "unreached" // bytes did not arrive, or wrong ones did
	Failed    State = "failed"    // bytes have arrived, and a later step has failed
	Lost      State = "lost"      // a node was lost during the run
	Unknown   State = "unknown"   // nothing was measured
	Reached   State = "reached"   // bytes were written and read back, and all were right
)

// Link is two NICs.
type Link struct {
	A      int     `json:"a"`                  // the place of one NIC in the list of NICs, which is smaller than B
	B      int     `json:"b"`                  // the place of the other NIC in the list of NICs
	State  State   `json:"state"`              // the state of the pair
	Caller int     `json:"caller"`             // A or B: the NIC that called the other one, and posted all operations
	AtoB   float64 `json:"a_to_b_bytes_per_s"` // the rate from the first to the second; 0 if it was not measured
	BtoA   float64 `json:"b_to_a_bytes_per_s"` // the rate from the second to the first; 0 if it was not measured
	// Latency is the median of a WRITE of 8 bytes, from posting to completion; 0 if it was not
	// measured.
	Latency int64  `json:"latency_p50_ns"`
	P99     int64  `json:"latency_p99_ns"`  // the 99th percentile of such WRITEs; 0 if it was not measured
	Over    string `json:"over"`            // the addresses of both NICs, and why these
	Fault   *Fault `json:"fault,omitempty"` // what did not work
}

// Cell is the worst of the links from one node to another.
type Cell struct {
	State   State   `json:"state"`       // the worst state of the links; "" for a node and itself
	Rate    float64 `json:"bytes_per_s"` // the lowest rate; 0 if none was measured
	Latency int64   `json:"latency_ns"`  // the highest median; 0 if none was measured
	Links   int     `json:"links"`       // how many links there are
	Bad     int     `json:"bad"`         // how many links are not reached
}

// Fault says what did not work.
type Fault struct {
	Cause string `json:"cause"` // the cause of the fault
	Step  string `json:"step"`  // the step that was tried, in words
	Text  string `json:"text"`  // the error
}

func faultOf(f *control.Fault) *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Cause: string(f.Cause), Step: f.Step, Text: f.Text}
}

// Slow is a node, a rail or a NIC that is slower than its peers.
type Slow struct {
	Scope   string  `json:"scope"`   // "node", "rail", "nic"
	Node    int     `json:"node"`    // the place of the node; -1 for a rail
	Rail    int     `json:"rail"`    // the place of the NIC in its node; -1 for a node
	Measure string  `json:"measure"` // "send", "receive", "latency"
	Value   float64 `json:"value"`   // the median, in bytes a second, or of a latency in nanoseconds
	Median  float64 `json:"median"`  // that of all NICs
	Spread  float64 `json:"spread"`  // the spread of all NICs: the median of the distances to Median, times 1.4826
	Factor  float64 `json:"factor"`  // how many times slower than the median
	Links   int     `json:"links"`   // how many links the value is of
}

// Count returns the number of links in each state.
func (r *Result) Count() map[State]int {
	n := map[State]int{}
	for i := range r.Links {
		n[r.Links[i].State]++
	}
	return n
}

// Finish makes what follows from the links: the matrix, and what is slow by more than the tolerance.
func (r *Result) Finish(tolerance float64) {
	r.fold()
	nics := make([]compare.NIC, len(r.NICs))
	for i, n := range r.NICs {
		nics[i] = compare.NIC{Node: n.Node, Rail: n.Rail}
	}
	var links []compare.Link
	for _, l := range r.Links {
		if l.State == Reached {
			links = append(links, compare.Link{A: l.A, B: l.B, Out: l.AtoB, In: l.BtoA, Latency: float64(l.Latency)})
		}
	}
	found := compare.Find(nics, links, tolerance)
	r.Slow, r.NotCompared = []Slow{}, append([]string{}, found.Unknown...)
	for _, f := range found.Findings {
		r.Slow = append(r.Slow, Slow{
			Scope: string(f.Scope), Node: f.Node, Rail: f.Rail, Measure: string(f.Measure),
			Value: f.Value, Median: f.Median, Spread: f.Spread, Factor: f.Factor(), Links: f.Links,
		})
	}
}

// fold makes the matrix.
func (r *Result) fold() {
	r.Matrix = make([][]Cell, len(r.Nodes))
	for i := range r.Matrix {
		r.Matrix[i] = make([]Cell, len(r.Nodes))
		for j := range r.Matrix[i] {
			if i != j {
				r.Matrix[i][j].State = Unknown
			}
		}
	}
	for i := range r.Links {
		l := &r.Links[i]
		a, b := r.NICs[l.A].Node, r.NICs[l.B].Node
		r.Matrix[a][b].add(l, l.AtoB)
		r.Matrix[b][a].add(l, l.BtoA)
	}
}

// rank orders the states; the worst is the least.
var rank = map[State]int{Unreached: 1, Failed: 2, Lost: 3, Unknown: 4, Reached: 5}

func (c *Cell) add(l *Link, rate float64) {
	if c.Links == 0 || rank[l.State] < rank[c.State] {
		c.State = l.State
	}
	c.Links++
	if l.State != Reached {
		c.Bad++
	}
	if rate > 0 && (c.Rate == 0 || rate < c.Rate) {
		c.Rate = rate
	}
	c.Latency = max(c.Latency, l.Latency)
}
