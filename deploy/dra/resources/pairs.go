// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Driver is the name of the driver, and the domain of its attributes.
const Driver = "p2p.gpurdma.github.io"

// Limits of the API.
const (
	perSlice     = 64 // devices, where one of them has a counter or a taint
	perSet       = 32 // counters
	setsPerSlice = 8  // sets of counters
	setsOfDevice = 2  // sets of counters that a device takes from
)

// Pairs returns the pool of a node whose pairs are offered. The devices are in the order of the offer, which is
// that of preference. Those of known, by name, that are not offered any more follow with a taint: the scheduler may
// have given them to a pod that has not started, and a device that leaves the slice frees its counters. A device
// with one of the bad pairs has a taint, too.
func Pairs(n *node.Node, o pairs.Offer, known map[string][]pairs.Pair, bad []pairs.Pair) resourceslice.Pool {
	c := countersOf(n, o, known)
	var devices []api.Device
	add := func(size int, list []pairs.Pair, name string, taints []api.DeviceTaint) {
		if use, ok := c.use(list); ok {
			devices = append(devices, api.Device{Name: name, Attributes: attributes(n, list, size), ConsumesCounters: use, Taints: taints})
		}
	}
	for _, p := range o.Pairs {
		add(1, []pairs.Pair{p}, Name(p), taints(n, bad, p))
	}
	for _, s := range o.Sets {
		add(len(s), s, SetName(s), taints(n, bad, s...))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if slices.ContainsFunc(devices, func(d api.Device) bool { return d.Name == name }) {
			continue
		}
		t := taints(n, bad, known[name]...)
		if t == nil {
			t = []api.DeviceTaint{{Key: Driver + "/offered", Value: "no", Effect: api.DeviceTaintEffectNoSchedule}}
		}
		add(len(known[name]), known[name], name, t)
	}
	var pool resourceslice.Pool
	for list := range slices.Chunk(c.sets, setsPerSlice) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: list})
	}
	for list := range slices.Chunk(devices, perSlice) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: list})
	}
	if len(pool.Slices) == 0 { // an empty pool says that the driver runs, and has nothing
		pool.Slices = []resourceslice.Slice{{}}
	}
	return pool
}

// Name is the name of a pair's device. It stays the same while the node runs.
func Name(p pairs.Pair) string { return "gpu-" + p.GPU + "-nic-" + p.NIC }

// SetName is the name of a set's device: the same for the same pairs.
func SetName(s pairs.Set) string {
	h := fnv.New32a()
	for _, p := range s {
		fmt.Fprintln(h, p.GPU, p.NIC)
	}
	return fmt.Sprintf("pairs-%d-gpu-%s-%08x", len(s), s[0].GPU, h.Sum32())
}

// taints returns the taint of a device with a pair that is not good any more. A pod that has it goes on.
func taints(n *node.Node, bad []pairs.Pair, list ...pairs.Pair) []api.DeviceTaint {
	for _, p := range list {
		if !slices.ContainsFunc(bad, p.Same) {
			continue
		}
		outcome := "gone" // the GPU or the NIC is not there
		if x, ok := n.Pair(p.GPU, p.NIC); ok {
			outcome = x.Outcome.String()
		}
		return []api.DeviceTaint{{Key: Driver + "/verdict", Value: outcome, Effect: api.DeviceTaintEffectNoSchedule}}
	}
	return nil
}

// attributes describes a device of one or more pairs. What differs between them, or is not known, is left out.
func attributes(n *node.Node, list []pairs.Pair, size int) map[api.QualifiedName]api.DeviceAttribute {
	out := map[api.QualifiedName]api.DeviceAttribute{"size": number(int64(size))}
	var roots, nodes, distances common[string]
	var verdicts common[chain.Outcome]
	var slowest uint64
	proven := true
	for i, p := range list {
		x, _ := n.Pair(p.GPU, p.NIC)
		g, c := n.GPU(p.GPU), n.NIC(p.NIC)
		for _, place := range []*string{g.Root, c.Root} {
			roots.add(value(place), place != nil)
		}
		for _, place := range []*int{g.NUMA, c.NUMA} {
			nodes.add(fmt.Sprint(value(place)), place != nil)
		}
		distances.add(x.Distance, x.Distance != "")
		verdicts.add(x.Outcome, true)
		proven = proven && x.Proven
		if i == 0 || x.Rate < slowest {
			slowest = x.Rate
		}
		if size == 1 {
			out[deviceattribute.StandardDeviceAttributePCIBusID] = text(g.PCI.String())
			out["gpu"], out["nic"], out["rdmaDevice"] = text(g.PCI.String()), text(c.PCI.String()), text(c.Name)
		}
	}
	if v, ok := roots.one(); ok {
		out[deviceattribute.StandardDeviceAttributePCIeRoot] = text(v)
	}
	if _, ok := nodes.one(); ok {
		out[deviceattribute.StandardDeviceAttributeNUMANode] = number(int64(*n.GPU(list[0].GPU).NUMA))
	}
	if v, ok := distances.one(); ok {
		out["distance"] = text(v)
	}
	if v, ok := verdicts.one(); ok {
		out["verdict"] = text(v.String())
	}
	out["proven"] = api.DeviceAttribute{BoolValue: &proven}
	if slowest > 0 {
		out["gbps"] = number(int64(slowest * 8 / 1e9))
	}
	return out
}

func text(s string) api.DeviceAttribute  { return api.DeviceAttribute{StringValue: &s} }
func number(n int64) api.DeviceAttribute { return api.DeviceAttribute{IntValue: &n} }
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// common is a value that all of several have, if they do.
type common[T comparable] struct {
	value       T
	some, other bool
}

func (c *common[T]) add(v T, known bool) {
	c.other = c.other || !known || c.some && v != c.value
	c.value, c.some = v, true
}

func (c *common[T]) one() (T, bool) { return c.value, c.some && !c.other }

// counters are one counter for each GPU and each NIC.
type counters struct {
	sets []api.CounterSet
	at   map[string]string // set by counter
}

func countersOf(n *node.Node, o pairs.Offer, known map[string][]pairs.Pair) *counters {
	c := &counters{at: map[string]string{}}
	var gpus, nics []string
	for _, g := range n.GPUs {
		gpus = append(gpus, gpuCounter(g.ID))
	}
	for _, x := range n.NICs {
		nics = append(nics, nicCounter(x.ID))
	}
	all := slices.Clone(o.Pairs)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		all = append(all, known[name]...)
	}
	for _, p := range all { // a device that a pod has may be gone
		if !slices.Contains(gpus, gpuCounter(p.GPU)) {
			gpus = append(gpus, gpuCounter(p.GPU))
		}
		if !slices.Contains(nics, nicCounter(p.NIC)) {
			nics = append(nics, nicCounter(p.NIC))
		}
	}
	c.add("gpus", gpus)
	c.add("nics", nics)
	return c
}

func gpuCounter(id string) string { return "gpu-" + id }
func nicCounter(id string) string { return "nic-" + id }

func (c *counters) add(kind string, names []string) {
	for i := 0; i*perSet < len(names); i++ {
		s := api.CounterSet{Name: fmt.Sprintf("%s-%d", kind, i), Counters: map[string]api.Counter{}}
		for _, name := range names[i*perSet : min((i+1)*perSet, len(names))] {
			s.Counters[name] = one()
			c.at[name] = s.Name
		}
		c.sets = append(c.sets, s)
	}
}

func one() api.Counter { return api.Counter{Value: *resource.NewQuantity(1, resource.DecimalSI)} }

// use returns what a device of some pairs takes: the counters of all its GPUs and NICs. It returns false
// for one that takes from more sets than a device may.
func (c *counters) use(list []pairs.Pair) (use []api.DeviceCounterConsumption, ok bool) {
	for _, p := range list {
		for _, name := range []string{gpuCounter(p.GPU), nicCounter(p.NIC)} {
			i := slices.IndexFunc(use, func(u api.DeviceCounterConsumption) bool { return u.CounterSet == c.at[name] })
			if i < 0 {
				i = len(use)
				use = append(use, api.DeviceCounterConsumption{CounterSet: c.at[name], Counters: map[string]api.Counter{}})
			}
			use[i].Counters[name] = one()
		}
	}
	return use, len(use) <= setsOfDevice
}
