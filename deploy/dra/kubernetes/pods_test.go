// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// outcome counts pods.
type outcome struct {
	placed  int
	bad     int // of these, those that have a pair that is not direct
	refused int // though all that was asked for was free
	full    int // it was not free, and the pod was refused
}

func (o *outcome) add(p outcome) {
	o.placed, o.bad, o.refused, o.full = o.placed+p.placed, o.bad+p.bad, o.refused+p.refused, o.full+p.full
}

// podsOfNode is how many pods each node gets in turn: on the 27 machines more than 200.
const podsOfNode = 9

// label is the name of a machine as that of a node.
func label(name string) string {
	return strings.ToLower(strings.NewReplacer("+", "-", "_", "-").Replace(name))
}

// Pods come and go on the machines of the corpus. Each has a node of the cluster, with a driver, and the scheduler places the
// pods. By pairs no pod is refused that could be met, and none gets a pair that is not direct or a device that
// another one has. The same pods are placed by pcieRoot alone on nodes beside these.
func TestPods(t *testing.T) {
	useCluster(t)
	topologies := clustertest.Topologies(t)
	if len(topologies) < 20 {
		t.Errorf("%d machines, want 20", len(topologies))
	}
	seed := newSeed(t)
	addNamespace(t, "by-pairs", classes())
	addNamespace(t, "by-root", byRootAlone())
	addRootClasses(t)
	names := slices.Sorted(maps.Keys(topologies))
	machines := map[string]*machine{}
	for _, name := range names {
		machines[name] = addMachine(t, label(name), topologies[name], time.Hour)
		addByRoot(t, label(name)+"-root", topologies[name])
	}
	var mu sync.Mutex
	results := map[string][2]outcome{}
	t.Run("in turn", func(t *testing.T) {
		for i, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ours := inTurn(t, seed+uint64(i), machines[name])
				theirs := inTurnByRoot(t, seed+uint64(i), label(name)+"-root", topologies[name], func() string { return "" })
				mu.Lock()
				results[name] = [2]outcome{ours, theirs}
				mu.Unlock()
			})
		}
	})
	var sum [2]outcome
	for _, name := range names {
		r := results[name]
		t.Logf("%-32s by pairs %+v, by pcieRoot %+v", name, r[0], r[1])
		sum[0].add(r[0])
		sum[1].add(r[1])
	}
	t.Logf("%-32s by pairs %+v, by pcieRoot %+v", "all", sum[0], sum[1])
	if sum[0].bad+sum[0].refused > 0 {
		t.Errorf("by pairs: %+v", sum[0])
	}
	if sum[0].placed+sum[0].full < 200 {
		t.Errorf("only %d pods were answered", sum[0].placed+sum[0].full)
	}
	if sum[1].bad == 0 || sum[1].refused == 0 {
		t.Errorf("by pcieRoot alone nothing is lost, %+v: the machines show nothing", sum[1])
	}
	t.Run("at once", func(t *testing.T) { atOnce(t, slices.Collect(maps.Values(machines))) })
	for _, m := range machines {
		if s := m.said(); len(s) > 0 {
			t.Errorf("%s: %q", m.name, s)
		}
		if s := m.specifications(t); len(s) > 0 {
			t.Errorf("%s: %v is left", m.name, s)
		}
	}
}

// byRootAlone is a template of claims for a GPU and a NIC of two drivers that match by pcieRoot.
func byRootAlone() map[string]api.ResourceClaimSpec {
	return map[string]api.ResourceClaimSpec{"pair": matching(string(deviceattribute.StandardDeviceAttributePCIeRoot), api.ResourceClaimSpec{
		Devices: api.DeviceClaim{Requests: []api.DeviceRequest{
			{Name: "gpu", Exactly: &api.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}},
			{Name: "nic", Exactly: &api.ExactDeviceRequest{DeviceClassName: "nic.example.com"}},
		}},
	})}
}

// addRootClasses adds the classes of the two drivers.
func addRootClasses(t *testing.T) {
	t.Helper()
	for _, driver := range []string{"gpu.example.com", "nic.example.com"} {
		if _, err := admin.ResourceV1().DeviceClasses().Create(t.Context(), &api.DeviceClass{
			ObjectMeta: meta.ObjectMeta{Name: driver},
			Spec:       api.DeviceClassSpec{Selectors: []api.DeviceSelector{{CEL: &api.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}}}},
		}, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// comeAndGo lets pods of a node come and go. place places one that asks for some pairs, and reports whether it runs.
func comeAndGo(seed uint64, sizes bool, place func(i, size int) bool, end func(i int)) {
	random := rand.New(rand.NewPCG(13, seed))
	var running []int
	for i := range podsOfNode {
		if len(running) > 0 && random.IntN(5) < 2 {
			at := random.IntN(len(running))
			end(running[at])
			running = slices.Delete(running, at, at+1)
		}
		size := 1
		if k := random.IntN(9); sizes && k < len(pairs.Sizes) {
			size = pairs.Sizes[k]
		}
		if place(i, size) {
			running = append(running, i)
		}
	}
	for _, i := range running {
		end(i)
	}
}

// templateOf is the template of claims for some pairs.
func templateOf(size int) string {
	if size == 1 {
		return "pair"
	}
	return fmt.Sprint("pairs-", size)
}

// inTurn places pods on a machine by its pairs, and compares with what is possible.
func inTurn(t *testing.T, seed uint64, m *machine) (o outcome) {
	pods := map[int]*core.Pod{}
	comeAndGo(seed, true, func(i, size int) bool {
		n, _ := m.look(t.Context())
		can := most(&n, given(t, m)) >= size
		p := create(t, newPod("by-pairs", fmt.Sprint(m.name, "-", i), templateOf(size), m.name))
		switch met := placed(t, p, can); {
		case met && !can:
			t.Errorf("%s: %d pairs were not free, and pod %s has them", m.name, size, p.Name)
			fallthrough
		case met:
			o.placed++
			runs(t, p, m)
			given(t, m)
		default: // as none was to be met
			o.full++
			remove(t, p, true)
			return false
		}
		if got := devicesOf(t, p); len(got) != 1 || len(m.known(t, got[0])) != size {
			t.Errorf("%s asks for %d pairs, and has %v", p.Name, size, got)
		}
		if devices, _ := m.kubelet.Devices(p.UID); len(devices) != 1 {
			t.Errorf("the runtime is told %v", devices)
		}
		pods[i] = p
		return true
	}, func(i int) { remove(t, pods[i], false) })
	return o
}

// addByRoot adds a node on which one driver publishes GPUs and another one NICs, by themselves.
func addByRoot(t *testing.T, name string, n *node.Node) {
	t.Helper()
	addNode(t, name, nil)
	pools := map[string]resourceslice.Slice{}
	add := func(driver, id string, root *string) {
		d := api.Device{Name: id, Attributes: map[api.QualifiedName]api.DeviceAttribute{"id": {StringValue: &id}}}
		if root != nil {
			d.Attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = api.DeviceAttribute{StringValue: root}
		}
		s := pools[driver]
		s.Devices = append(s.Devices, d)
		pools[driver] = s
	}
	for _, g := range n.GPUs {
		add("gpu.example.com", g.ID, g.Root)
	}
	for _, x := range n.NICs {
		add("nic.example.com", x.ID, x.Root)
	}
	for driver, s := range pools {
		c, err := resourceslice.StartController(context.Background(), resourceslice.Options{
			DriverName: driver, KubeClient: admin, Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: name},
			Resources: &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{name: {Slices: []resourceslice.Slice{s}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Stop)
		wait(t, driver+" has published on "+name, func() (bool, string) {
			all, err := admin.ResourceV1().ResourceSlices().List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + name + ",spec.driver=" + driver})
			return err == nil && len(all.Items) == 1, fmt.Sprint(err)
		})
	}
}

// inTurnByRoot places the same pods, all for one pair, by pcieRoot alone. choose returns the GPU that a pod asks for, "" for
// any.
func inTurnByRoot(t *testing.T, seed uint64, name string, n *node.Node, choose func() string) (o outcome) {
	pods, has := map[int]*core.Pod{}, map[int]pairs.Pair{}
	comeAndGo(seed, false, func(i, _ int) bool {
		gpu, taken := choose(), slices.Collect(maps.Values(has))
		can := slices.ContainsFunc(n.Pairs, func(p node.Pair) bool { return (gpu == "" || gpu == p.GPU) && isFree(n, taken, p.GPU, p.NIC) })
		template := "pair"
		if gpu != "" {
			template = fmt.Sprint(name, "-", i)
			claim := byRootAlone()["pair"]
			claim.Devices.Requests[0].Exactly.Selectors = []api.DeviceSelector{{CEL: &api.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes['gpu.example.com'].id == %q", gpu)}}}
			addTemplate(t, "by-root", template, claim)
		}
		p := create(t, newPod("by-root", fmt.Sprint(name, "-", i), template, name))
		if !placed(t, p, false) {
			if can {
				o.refused++
			} else {
				o.full++
			}
			remove(t, p, true)
			return false
		}
		o.placed++
		got := devicesOf(t, p)
		has[i], pods[i] = pairs.Pair{GPU: got[0], NIC: got[1]}, p
		if x, _ := n.Pair(got[0], got[1]); x.Outcome != chain.Direct {
			o.bad++
		}
		return true
	}, func(i int) {
		remove(t, pods[i], true)
		delete(has, i)
	})
	return o
}

// atOnce fills the whole cluster: sets of eight pairs first, and then as many pods for one pair as there is place
// for. All of them come at once, and have no node of their own. One more is refused.
func atOnce(t *testing.T, machines []*machine) {
	free := func() (pairs, sets int) {
		for _, m := range machines {
			n, _ := m.look(t.Context())
			k := most(&n, given(t, m))
			pairs, sets = pairs+k, sets+k/8
		}
		return pairs, sets
	}
	var pods []*core.Pod
	comes := func(template string, count int) {
		for range count {
			pods = append(pods, create(t, newPod("by-pairs", fmt.Sprint("at-once-", len(pods)), template, "")))
		}
		for _, p := range pods {
			placed(t, p, true)
			m := machines[slices.IndexFunc(machines, func(m *machine) bool { return m.name == get(t, p).Spec.NodeName })]
			runs(t, p, m)
		}
	}
	_, sets := free()
	comes("pairs-8", sets)
	if left, more := free(); more > 0 {
		t.Errorf("%d sets of 8 were placed, and %d pairs are left, with %d more sets", sets, left, more)
	}
	left, _ := free()
	comes("pair", left)
	t.Logf("%d sets of 8 and %d pairs were placed at once", sets, left)
	if left, _ := free(); left > 0 {
		t.Errorf("%d pairs are free, and all that could be placed was", left)
	}
	p := create(t, newPod("by-pairs", "one-more", "pair", ""))
	if placed(t, p, false) {
		t.Error("all is given away, and one more pod is placed")
	}
	remove(t, p, true) // before the others: it would be placed when they end, and no kubelet takes part in this
	for _, q := range pods {
		remove(t, q, false)
	}
}
