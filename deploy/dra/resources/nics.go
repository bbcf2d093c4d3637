// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"slices"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Conditions of a claim that has a NIC. The scheduler waits for one of the two before it binds the pod to the node.
const (
	Partner   = Driver + "/partner"    // the NIC is a partner of the claim's GPUs
	NoPartner = Driver + "/no-partner" // it is not: the scheduler is to choose again
)

// Partners is the attribute that lists the GPUs that a NIC reaches directly, by their PCI addresses.
const Partners = Driver + "/partners"

// mostListed is how many partners are listed: all values of a device are at most 48, and the others are at most 8.
const mostListed = 40

// NICs are what a node offers where another driver gives the GPUs to pods.
type NICs struct {
	Order []string          // IDs of the NICs, in the order in which the scheduler is to try them
	Known []string          // IDs of those that were offered: they stay, since a pod may have them
	Roots map[string]string // the value of pcieRoot by ID; one that has none is left out
	Lists bool              // the cluster has attributes that are lists

	Closed bool // for a while no claim gets a NIC
}

// Pool returns the pool of a node. A NIC that reaches no GPU directly is offered only if it was before, with a taint.
func (o NICs) Pool(n *node.Node) resourceslice.Pool {
	partners := map[string][]string{}
	for _, p := range n.Pairs {
		if p.Outcome == chain.Direct {
			partners[p.NIC] = append(partners[p.NIC], n.GPU(p.GPU).PCI.String())
		}
	}
	var devices []api.Device
	var closed []api.DeviceTaint
	if o.Closed {
		closed = []api.DeviceTaint{{Key: Driver + "/closed", Value: "now", Effect: api.DeviceTaintEffectNoSchedule}}
	}
	for _, id := range o.Offered(n) {
		devices = append(devices, o.device(n, id, partners[id], closed))
	}
	for _, id := range slices.Sorted(slices.Values(o.Known)) {
		if len(partners[id]) > 0 {
			continue
		}
		value := "gone"
		if n.NIC(id).ID != "" {
			value = "no-gpu"
		}
		devices = append(devices, o.device(n, id, nil, []api.DeviceTaint{{Key: Driver + "/verdict", Value: value, Effect: api.DeviceTaintEffectNoSchedule}}))
	}
	var pool resourceslice.Pool
	for list := range slices.Chunk(devices, perSlice) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: list})
	}
	if len(pool.Slices) == 0 {
		pool.Slices = []resourceslice.Slice{{}}
	}
	return pool
}

// Offered returns the IDs of the NICs that reach a GPU directly, in order.
func (o NICs) Offered(n *node.Node) (list []string) {
	reach := map[string]bool{}
	for _, p := range n.Direct() {
		reach[p.NIC] = true
	}
	for _, id := range o.Order {
		if reach[id] {
			list = append(list, id)
		}
	}
	return list
}

// NICName is the name of a NIC's device.
func NICName(id string) string { return "nic-" + id }

func (o NICs) device(n *node.Node, id string, partners []string, taints []api.DeviceTaint) api.Device {
	d := api.Device{
		Name: NICName(id), Attributes: map[api.QualifiedName]api.DeviceAttribute{}, Taints: taints,
		BindingConditions: []string{Partner}, BindingFailureConditions: []string{NoPartner}, BindsToNode: &yes,
	}
	if x := n.NIC(id); x.ID != "" {
		d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID] = text(x.PCI.String())
		d.Attributes["rdmaDevice"] = text(x.Name)
		if x.NUMA != nil {
			d.Attributes[deviceattribute.StandardDeviceAttributeNUMANode] = number(int64(*x.NUMA))
		}
	}
	if root, ok := o.Roots[id]; ok {
		d.Attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = text(root)
	}
	d.Attributes["gpus"] = number(int64(len(partners)))
	if o.Lists && len(partners) > 0 && len(partners) <= mostListed {
		d.Attributes["partners"] = api.DeviceAttribute{StringValues: partners}
	}
	return d
}

var yes = true
