// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	api "k8s.io/api/resource/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// machine has GPUs and NICs, each as "name@root", and the direct pairs, each as "gpu-nic". "@" alone is a
// device whose root is not known.
func machine(gpus, nics, direct string) *node.Node {
	n := &node.Node{}
	place := func(text string) (string, result.Place) {
		name, root, _ := strings.Cut(text, "@")
		if root == "" {
			return name, result.Place{}
		}
		return name, result.Place{Root: &root}
	}
	for i, text := range strings.Fields(gpus) {
		name, at := place(text)
		n.GPUs = append(n.GPUs, node.GPU{ID: name, PCI: pciaddr.Addr{Bus: uint8(i + 1)}, Place: at})
	}
	for i, text := range strings.Fields(nics) {
		name, at := place(text)
		n.NICs = append(n.NICs, node.NIC{ID: name, Name: "mlx5_" + name, PCI: pciaddr.Addr{Bus: uint8(i + 101)}, Place: at})
	}
	for _, g := range n.GPUs {
		for _, x := range n.NICs {
			p := node.Pair{GPU: g.ID, NIC: x.ID, Outcome: chain.Staged, Why: "a port redirects"}
			if slices.Contains(strings.Fields(direct), g.ID+"-"+x.ID) {
				p.Outcome, p.Why = chain.Direct, ""
			}
			n.Pairs = append(n.Pairs, p)
		}
	}
	return n
}

func TestRoots(t *testing.T) {
	for name, c := range map[string]struct {
		gpus, nics, direct string
		own, others        string // "nic=root"
	}{
		"one root each":              {"a@1 b@2", "x@1 y@2", "a-x b-y", "x=1 y=2", "x=1 y=2"},
		"one root, not all direct":   {"a@1 b@1", "x@1 y@1", "a-x b-y", "", ""},
		"one root, one reaches all":  {"a@1 b@1", "x@1 y@1", "a-x a-y b-y", "y=1", "y=1"},
		"NICs below other roots":     {"a@1 b@2", "x@3 y@4", "a-x a-y b-x b-y", "", "x=1 y=2"},
		"more NICs than GPUs":        {"a@1", "x@3 y@4", "a-x a-y", "", "x=1 y=1"},
		"the own root is kept":       {"a@1 b@2", "x@1 y@3", "a-x a-y b-x b-y", "x=1", "x=1 y=2"},
		"a GPU whose root is hidden": {"a@1 b@", "x@1", "a-x", "", ""},
		"a NIC whose root is hidden": {"a@1", "x@", "a-x", "", "x=1"},
		"nothing is direct":          {"a@1", "x@1", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := machine(c.gpus, c.nics, c.direct)
			for _, k := range []struct {
				others bool
				want   string
			}{{false, c.own}, {true, c.others}} {
				got := Roots(n, k.others)
				var list []string
				for _, nic := range slices.Sorted(maps.Keys(got)) {
					list = append(list, nic+"="+got[nic])
				}
				if text := strings.Join(list, " "); text != k.want {
					t.Errorf("others %v: %q, want %q", k.others, text, k.want)
				}
			}
		})
	}
}

// On random machines, a NIC reaches all GPUs directly that have the same value, or may have it. Each NIC that has the
// value of its own host bridge keeps it, whatever the others do.
func TestRandomRoots(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(1, seed))
	several := 0
	for range 500 {
		var gpus, nics, pairs []string
		for i := range 1 + r.IntN(6) {
			gpus = append(gpus, fmt.Sprintf("g%d@%s", i, []string{"", "1", "2", "3", "1", "2", "3"}[r.IntN(7)]))
		}
		for i := range 1 + r.IntN(6) {
			nics = append(nics, fmt.Sprintf("n%d@%s", i, []string{"", "1", "2", "4"}[r.IntN(4)]))
		}
		for i := range gpus {
			for j := range nics {
				if r.IntN(4) > 0 {
					pairs = append(pairs, fmt.Sprintf("g%d-n%d", i, j))
				}
			}
		}
		n := machine(strings.Join(gpus, " "), strings.Join(nics, " "), strings.Join(pairs, " "))
		own := Roots(n, false)
		for _, others := range []bool{false, true} {
			for nic, root := range Roots(n, others) {
				for _, g := range n.GPUs {
					if g.Root != nil && *g.Root != root {
						continue
					}
					if several++; !direct(n, g.ID, nic) {
						t.Fatalf("seed %d: NIC %s has %s and does not reach GPU %s: %v, %v, %v", seed, nic, root, g.ID, gpus, nics, pairs)
					}
				}
			}
			for nic, root := range own {
				if got := Roots(n, others)[nic]; got != root {
					t.Fatalf("seed %d: NIC %s has %s, not %s: %v, %v, %v", seed, nic, got, root, gpus, nics, pairs)
				}
			}
		}
	}
	if several < 500 {
		t.Errorf("only %d pairs were looked at", several)
	}
}

func TestAgree(t *testing.T) {
	n := machine("a@1 b@1 c@1", "x@1 y@1 z@1", "a-x a-y b-x b-y")
	for name, c := range map[string]struct{ gpus, nics, want string }{
		"a pair":           {"a", "x", ""},
		"two pairs":        {"a b", "x y", ""},
		"no GPU":           {"", "z", ""},
		"two NICs, one":    {"a", "x y", ""},
		"one NIC for two":  {"a b", "x", ""},
		"not direct":       {"a", "z", "NIC mlx5_z reaches no GPU of the claim directly: GPU 0000:01:00.0 and NIC mlx5_z: a port redirects; GPU 0000:01:00.0 is reached by mlx5_x, mlx5_y"},
		"a GPU without":    {"a c", "x y", "no NIC of the claim reaches GPU 0000:03:00.0 directly: "},
		"reached by no":    {"c", "x", "GPU 0000:03:00.0 is reached by no NIC"},
		"a NIC that went":  {"a", "gone", "one of the two is not there"},
		"no NIC of a node": {"a", "", "no NIC of the claim reaches GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Agree(n, strings.Fields(c.gpus), strings.Fields(c.nics))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	need := machine("a@1 b@1", "x@1 y@1 z@1", "a-x b-x a-y a-z")
	if err := Agree(need, []string{"a", "b"}, []string{"x", "y"}); err != nil {
		t.Error(err)
	}
	both := machine("a@1 b@1 c@1", "x@1 y@1 z@1", "a-x b-x c-y c-z")
	if err := Agree(both, []string{"a", "b", "c"}, []string{"x", "y", "z"}); err == nil || !strings.Contains(err.Error(), "only 2 of the claim's 3 GPUs can have a NIC of their own") {
		t.Error(err)
	}
}

func TestGPUs(t *testing.T) {
	n := machine("a@1 b@1", "x@1", "")
	text := func(s string) api.DeviceAttribute { return api.DeviceAttribute{StringValue: &s} }
	published := []api.ResourceSlice{
		// An older generation, from before the driver has numbered its devices anew.
		{Spec: api.ResourceSliceSpec{Driver: "gpu.nvidia.com", Pool: api.ResourcePool{Name: "node-1", Generation: 2}, Devices: []api.Device{
			{Name: "gpu-0", Attributes: map[api.QualifiedName]api.DeviceAttribute{"resource.kubernetes.io/pciBusID": text("0000:02:00.0")}},
			{Name: "gpu-8", Attributes: map[api.QualifiedName]api.DeviceAttribute{"resource.kubernetes.io/pciBusID": text("0000:02:00.0")}},
		}}},
		{Spec: api.ResourceSliceSpec{Driver: "gpu.nvidia.com", Pool: api.ResourcePool{Name: "node-1", Generation: 3}, Devices: []api.Device{
			{Name: "gpu-0", Attributes: map[api.QualifiedName]api.DeviceAttribute{"resource.kubernetes.io/pciBusID": text("0000:01:00.0")}},
			{Name: "gpu-1", Attributes: map[api.QualifiedName]api.DeviceAttribute{"gpu.nvidia.com/pciBusID": text("0000:02:00.0")}},
			{Name: "gpu-2", Attributes: map[api.QualifiedName]api.DeviceAttribute{"pciAddr": text("0000:09:00.0")}},
			{Name: "gpu-3", Attributes: map[api.QualifiedName]api.DeviceAttribute{"pciBusID": text("<script>"), "uuid": text("0000:01:00.0")}},
			{Name: "mig-0", Attributes: map[api.QualifiedName]api.DeviceAttribute{"resource.kubernetes.io/pciBusID": text("0000:01:00.0")}},
		}}},
		{Spec: api.ResourceSliceSpec{Driver: "cpu.example.com", Pool: api.ResourcePool{Name: "node-1"}, Devices: []api.Device{
			{Name: "cpu-0"}, {Name: "odd", Attributes: map[api.QualifiedName]api.DeviceAttribute{"pciAddress": text("0000:02:00.0")}},
		}}},
	}
	for name, c := range map[string]struct{ devices, want, err string }{
		"by the standard":     {"gpu.nvidia.com/gpu-0", "a", ""},
		"by the driver's own": {"gpu.nvidia.com/gpu-1", "b", ""},
		"ours and another's":  {"ours/nic-x cpu.example.com/cpu-0 gpu.nvidia.com/gpu-0", "a", ""},
		"parts of one":        {"gpu.nvidia.com/gpu-0 gpu.nvidia.com/mig-0", "a", ""},
		"a GPU of another":    {"cpu.example.com/odd", "b", ""},
		"no GPU of this node": {"gpu.nvidia.com/gpu-2", "", "is at 0000:09:00.0, and no GPU with memory of its own is seen there"},
		"no address":          {"gpu.nvidia.com/gpu-3", "", "has no PCI address among its attributes"},
		"not any more":        {"gpu.nvidia.com/gpu-8", "", "gpu.nvidia.com does not publish its device gpu-8 for this node now"},
		"not published":       {"gpu.nvidia.com/gpu-9", "", "gpu.nvidia.com does not publish its device gpu-9 for this node now"},
		"a NIC, and no GPU":   {"ours/nic-x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &api.ResourceClaim{Status: api.ResourceClaimStatus{Allocation: &api.AllocationResult{}}}
			for _, d := range strings.Fields(c.devices) {
				driver, device, _ := strings.Cut(d, "/")
				claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, api.DeviceRequestAllocationResult{Driver: driver, Pool: "node-1", Device: device})
			}
			got, err := GPUs(n, "ours", []string{"gpu.nvidia.com"}, published, claim)
			if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v, want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}
