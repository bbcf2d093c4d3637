// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// look reads a machine of the corpus.
func look(t *testing.T, name string) Node {
	t.Helper()
	all := testenv.Corpus(t)
	i := slices.IndexFunc(all, func(c testenv.CorpusMachine) bool { return c.Name == name })
	if i < 0 {
		t.Fatal("no machine", name)
	}
	n, err := Look(machine.Open(all[i].Tree.Write(t)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The devices of an HGX: the nearest pair of each GPU costs least, and neighbours follow each other.
func TestLook(t *testing.T) {
	n := look(t, "hgx")
	if len(n.GPUs) != 8 || len(n.NICs) != 8 || len(n.Pairs) != 64 {
		t.Fatalf("%d GPUs, %d NICs, %d pairs", len(n.GPUs), len(n.NICs), len(n.Pairs))
	}
	direct := n.Direct()
	for i, p := range direct {
		x, ok := n.Pair(p.GPU, p.NIC)
		if !ok || x.Outcome != chain.Direct {
			t.Errorf("%v is %v", p, x.Outcome)
		}
		if i > 0 && direct[i-1].GPU == p.GPU && direct[i-1].Cost > p.Cost {
			t.Errorf("%v comes before %v", direct[i-1], p)
		}
	}
	o := pairs.Make(direct, pairs.Taken{}, 3)
	if o.Matched != 8 {
		t.Errorf("%d pairs can be given away at once", o.Matched)
	}
	for _, p := range o.Pairs[:o.Matched] {
		if x, _ := n.Pair(p.GPU, p.NIC); x.Distance != "PIX" && x.Distance != "PXB" {
			t.Errorf("%v is among the first, and %s", p, x.Distance)
		}
	}
	for _, g := range n.GPUs {
		if len(g.Files.Needed) == 0 {
			t.Errorf("%s has no device file", g.ID)
		}
	}
	for _, x := range n.NICs {
		if len(x.Files.Needed) != 1 || x.Name == "" {
			t.Errorf("%+v", x)
		}
	}
}

// A pair of which something is unknown, or that is staged, is not given to a pod.
func TestOnlyDirect(t *testing.T) {
	for _, name := range []string{"aws-p5", "mi300x-debian-6.12", "geforce-4090", "hgx-remap-off"} {
		if n := look(t, name); len(n.Pairs) == 0 || len(n.Direct()) > 0 {
			t.Errorf("%s: %d pairs, %v are offered", name, len(n.Pairs), n.Direct())
		}
	}
}

// Each NIC has an ID of its own, with which the names of its devices are DNS labels, whatever its RDMA device is called.
func TestNICIDs(t *testing.T) {
	var nics []drivers.NIC
	a, b := pciaddr.Addr{Bus: 1}, pciaddr.Addr{Domain: 0x10000, Bus: 2}
	for _, name := range []string{"mlx5_0", "mlx5_1", "mlx5-1", "mlx5_", strings.Repeat("x", 63), strings.Repeat("y", 63), "_"} {
		for _, at := range []*pciaddr.Addr{&a, &b} {
			var x drivers.NIC
			x.Name, x.Importer.PCI = name, at
			nics = append(nics, x)
		}
	}
	seen := map[string]bool{}
	for i, id := range nicIDs(nics) {
		if seen[id] {
			t.Errorf("%s: the ID %s is there twice", nics[i].Name, id)
		}
		seen[id] = true
		for _, name := range []string{"nic-" + id, "gpu-" + idOf(b) + "-nic-" + id} {
			if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
				t.Errorf("%s: %s: %q", nics[i].Name, name, errs)
			}
		}
	}
	if ids := nicIDs(nics[:4]); ids[0] != "0000-01-00-0" || ids[2] != "0000-01-00-0-mlx5-1" {
		t.Error(ids)
	}
}
