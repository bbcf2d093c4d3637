// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// world makes the links of a mesh. speed is a NIC's, as a part of the others'; noise the part by which
// links differ.
func world(rnd *rand.Rand, nodes, rails int, noise float64, send, receive func(node, rail int) float64) (nics []NIC, links []Link) {
	for n := range nodes {
		for r := range rails {
			nics = append(nics, NIC{n, r})
		}
	}
	for a, x := range nics {
		for b, y := range nics {
			if x.Node >= y.Node {
				continue
			}
			vary := func() float64 { return 1 + noise*(2*rnd.Float64()-1) }
			links = append(links, Link{
				A: a, B: b,
				Out:     10e9 * vary() * min(send(x.Node, x.Rail), receive(y.Node, y.Rail)),
				In:      10e9 * vary() * min(send(y.Node, y.Rail), receive(x.Node, x.Rail)),
				Latency: 3000 * vary() / min(send(x.Node, x.Rail), send(y.Node, y.Rail)),
			})
		}
	}
	return nics, links
}

func even(int, int) float64 { return 1 }

// words are findings in short.
func words(r Report) (list []string) {
	for _, f := range r.Findings {
		list = append(list, fmt.Sprintf("%s %d/%d %s", f.Scope, f.Node, f.Rail, f.Measure))
	}
	slices.Sort(list)
	return list
}

func TestFind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	one := func(node, rail int, speed float64) func(int, int) float64 {
		return func(n, r int) float64 {
			if (node < 0 || n == node) && (rail < 0 || r == rail) {
				return speed
			}
			return 1
		}
	}
	for _, c := range []struct {
		name          string
		nodes, rails  int
		noise         float64
		send, receive func(int, int) float64
		want          string
	}{
		{"all alike", 8, 1, 0, even, even, ""},
		{"noise", 16, 2, 0.1, even, even, ""},
		{"a node sends slowly", 8, 1, 0.05, one(3, -1, 0.5), even, "node 3/-1 latency; node 3/-1 send"},
		{"a node receives slowly", 8, 1, 0.05, even, one(0, -1, 0.5), "node 0/-1 receive"},
		{"a NIC of two", 8, 2, 0.05, even, one(5, 1, 0.6), "nic 5/1 receive"},
		{"both NICs of a node", 8, 2, 0.05, even, one(5, -1, 0.6), "node 5/-1 receive"},
		{"a rail of four", 8, 4, 0.05, even, one(-1, 2, 0.6), "rail -1/2 receive"},
		{"less than the tolerance", 8, 1, 0.01, even, one(0, -1, 0.85), ""},
		{"the fewest nodes", 4, 1, 0.02, even, one(2, -1, 0.3), "node 2/-1 receive"},
		{"two of eight", 8, 1, 0.02, even, func(n, _ int) float64 {
			if n < 2 {
				return 0.4
			}
			return 1
		}, "node 0/-1 receive; node 1/-1 receive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nics, links := world(rnd, c.nodes, c.rails, c.noise, c.send, c.receive)
			r := Find(nics, links, 0.2)
			if got := strings.Join(words(r), "; "); got != c.want || len(r.Unknown) > 0 {
				t.Errorf("%q, unknown %q; want %q", got, r.Unknown, c.want)
			}
			for _, f := range r.Findings {
				if f.Factor() < 1.25 || f.Links == 0 || f.Median <= 0 {
					t.Errorf("%+v: factor %v", f, f.Factor())
				}
			}
		})
	}
}

// Rates that differ by up to half of the median lead to a finding in about one fleet of a thousand.
func TestFindMuchNoise(t *testing.T) {
	const fleets, most = 300, 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd, wrong := rand.New(rand.NewPCG(seed, 0)), 0
	for range fleets {
		nics, links := world(rnd, 16, 1, 0.5, even, even)
		if r := Find(nics, links, 0.2); len(r.Findings) > 0 || len(r.Unknown) > 0 {
			wrong++
		}
	}
	if wrong > most {
		t.Errorf("%d of %d fleets of equal nodes have findings", wrong, fleets)
	}
}

// With too few nodes, or links, the answer is unknown, and no node is named.
func TestFindUnknown(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	slow := func(n, _ int) float64 {
		if n == 1 {
			return 0.1
		}
		return 1
	}
	for nodes := range LeastNodes {
		nics, links := world(rnd, nodes, 2, 0, even, slow)
		r := Find(nics, links, 0.2)
		says := "which one of a slow link's two ends"
		if nodes < 2 {
			says = "nothing was measured"
		}
		if len(r.Findings) > 0 || len(r.Unknown) != 1 || !strings.Contains(r.Unknown[0], says) {
			t.Errorf("%d nodes: %+v", nodes, r)
		}
	}
	// Node 1 has links to two others only.
	nics, links := world(rnd, 8, 1, 0, even, slow)
	links = slices.DeleteFunc(links, func(l Link) bool { return (l.A == 1 || l.B == 1) && l.A+l.B > 3 })
	r := Find(nics, links, 0.2)
	if len(r.Findings) > 0 || len(r.Unknown) != 1 || !strings.Contains(r.Unknown[0], "send, receive, latency: 1 of 8 NICs have links to fewer than 3") {
		t.Errorf("%+v", r)
	}
	// A value of 0, of a link that was not measured, is not a slow one.
	nics, links = world(rnd, 8, 1, 0.01, even, even)
	for i := range links {
		if links[i].A == 2 {
			links[i].Out, links[i].Latency = 0, 0
		}
	}
	if r := Find(nics, links, 0.2); len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
}

// A node four of whose seven links are slow is not slow itself, though its median is.
func TestFindMixed(t *testing.T) {
	nics, links := world(rand.New(rand.NewPCG(1, 1)), 8, 1, 0, even, even)
	for i := range links {
		if l := &links[i]; l.A == 0 && l.B <= 4 {
			l.Out *= 0.4
		}
	}
	if r := Find(nics, links, 0.2); len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
	for i := range links {
		if l := &links[i]; l.A == 0 && l.B > 4 {
			l.Out *= 0.4
		}
	}
	if got := words(Find(nics, links, 0.2)); len(got) != 1 || got[0] != "node 0/-1 send" {
		t.Errorf("%q", got)
	}
}

func TestMedian(t *testing.T) {
	for want, list := range map[float64][]float64{1: {1}, 2: {3, 1, 2}, 2.5: {4, 1, 2, 3}} {
		if got := Median(list); got != want {
			t.Errorf("%v: %v", list, got)
		}
	}
}
