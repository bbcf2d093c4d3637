// SPDX-License-Identifier: Apache-2.0

package live

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// For every GPU, NIC, behaviour of the exporter and kind of importer, the proof has the predicted
// outcome, or says why the outcome is not known.
//
//testbed:machine fabric+EPYC fabric+EPYC+iommu nested+Nehalem+iommu
//testbed:machine-arm64 fabric fabric+iommu
//testbed:kernel 7.2
func TestVMAgree(t *testing.T) { agree(t, chain.Direct, chain.Staged, chain.Refused) }

// The same test on a kernel that is built without peer-to-peer.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMAgreeWithoutP2PDMA(t *testing.T) { agree(t, chain.Staged, chain.Refused) }

// behaviours are the behaviours of the software GPU whose buffers may be in any memory.
var behaviours = []struct {
	name, class string
	pin         string // pin_rule; "" is the rule of the kernel's own drivers
	open        bool   // nvidia: no gate
}{
	{name: "amdgpu", class: "amdgpu"},
	{name: "amdgpu pinning in system memory", class: "amdgpu", pin: "system"},
	{name: "xe", class: "xe"},
	{name: "i915", class: "i915"},
	{name: "nvidia", class: "nvidia"},
	{name: "nvidia without gate", class: "nvidia", open: true},
	{name: "nvidia-coherent", class: "nvidia-coherent"},
	{name: "vfio", class: "vfio"},
}

// kinds are the kinds of importers that rxe can imitate.
var kinds = []struct{ name, peer string }{
	{"pinned", "1"}, {"revocable", "1"}, {"dynamic", "1"}, {"pinned", "0"},
}

// agree tries enough combinations that every two values of GPU, NIC, behaviour and kind
// occur together once. It does not try all combinations, because a proof takes a second.
func agree(t *testing.T, outcomes ...chain.Outcome) {
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	m := machine.Open("")
	nics, err := drivers.NICs(m)
	if err != nil || len(nics) < 5 {
		t.Fatal(nics, err)
	}
	for _, n := range nics {
		keepFile(t, kindFile(n, "importer"))
		keepFile(t, kindFile(n, "peer2peer"))
	}
	const gate = "/sys/module/softgpu/parameters/topology_gate"
	keepFile(t, gate)
	p, err := Open(m, Options{Size: 64 << 10, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, g := range gpus {
			if left := g.Buffers(t); len(left) > 0 {
				t.Errorf("%s still has %v", g.Name, left)
			}
		}
	}()
	if p.Blind() != nil {
		t.Fatal(p.Blind())
	}
	seen := map[chain.Outcome]int{}
	met := map[[2]string]bool{}
	start := time.Now()
	for c := range 2 * len(behaviours) * len(kinds) {
		i, j, round := c/2/len(kinds), c/2%len(kinds), c%2
		b, kind := behaviours[i], kinds[j]
		g, n := gpus[(i+j)%len(gpus)], nics[(i+2*j+round)%len(nics)]
		names := []string{g.Name, n.Name, b.name, kind.name + ", peer to peer " + kind.peer}
		for k, name := range names {
			for _, other := range names[:k] {
				met[[2]string{other, name}] = true
			}
		}
		rule, err := os.ReadFile("/sys/bus/pci/devices/" + g.PCI + "/pin_rule")
		if err != nil {
			t.Fatal(err)
		}
		g.Set(t, "behaviour", b.class)
		if b.pin != "" {
			g.Set(t, "pin_rule", b.pin)
		}
		writeFile(t, gate, map[bool]string{true: "N", false: "Y"}[b.open])
		writeFile(t, kindFile(n, "importer"), kind.name)
		writeFile(t, kindFile(n, "peer2peer"), kind.peer)
		pair := findWith(t, m, g.PCI, n)
		pair.Prove(m, p.Prove(t.Context(), pair))
		disagreement(t, strings.Join(names, ", "), pair)
		seen[pair.Proof.Outcome]++
		g.Set(t, "pin_rule", strings.TrimSpace(string(rule)))
	}
	t.Logf("%d proofs in %v: %v", 2*len(behaviours)*len(kinds), time.Since(start).Round(time.Second), seen)
	G, N, B, K := len(gpus), len(nics), len(behaviours), len(kinds)
	if want := G*(N+B+K) + N*(B+K) + B*K; len(met) != want {
		t.Errorf("%d of %d twos met: %v", len(met), want, met)
	}
	for _, o := range outcomes {
		if seen[o] == 0 {
			t.Errorf("no pair was %v: %v", o, seen)
		}
		delete(seen, o)
	}
	if len(seen) > 0 {
		t.Errorf("pairs of other outcomes: %v", seen)
	}
}

// disagreement reports a proof that differs from the prediction, or whose steps do not fit
// its outcome.
func disagreement(t *testing.T, name string, pair p2p.Pair) {
	t.Helper()
	q := pair.Proof
	if pair.Agrees() != placement.Yes {
		t.Errorf("%s: agrees %v: predicted %v; proven %v %+v", name, pair.Agrees(), pair.Prediction, q, q.Steps)
		return
	}
	if q.Outcome == chain.Refused && q.Stage != string(pair.Prediction.Stage) {
		t.Errorf("%s: refused by %s, predicted %v: %v", name, q.Stage, pair.Prediction, q)
	}
	want := slices.Repeat([]p2p.Result{p2p.ResultPass}, len(q.Steps))
	want[p2p.RungOrder] = p2p.ResultSkip // Brief
	switch q.Outcome {
	case chain.Refused:
		for r := p2p.RungRegister; r < p2p.RungRelease; r++ {
			want[r] = p2p.ResultSkip
		}
		want[p2p.RungRegister] = p2p.ResultFail
	case chain.Staged:
		want[p2p.RungPlace], want[p2p.RungRoute] = p2p.ResultFail, p2p.ResultSkip
	case chain.Direct:
		if pair.Prediction.Address == drivers.AddressIOVA { // an IOVA does not show the route
			want[p2p.RungRoute] = p2p.ResultUnknown
		}
	}
	for r, s := range q.Steps {
		if s.Result != want[r] || s.Detail == "" {
			t.Errorf("%s, %v: %v: %v %s, want %v", name, q.Outcome, p2p.Rung(r), s.Result, s.Detail, want[r])
		}
	}
}

func kindFile(n drivers.NIC, file string) string {
	return "/sys/class/infiniband/" + n.Name + "/" + file
}

// keepFile restores the content of a file of sysfs when the test ends.
func keepFile(t *testing.T, name string) {
	t.Helper()
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writeFile(t, name, string(old)) })
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0); err != nil {
		t.Error(err)
	}
}
