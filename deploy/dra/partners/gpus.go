// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// addresses are the names, without a domain, of attributes in which drivers publish a device's PCI address.
var addresses = []string{"pcibusid", "pciaddress", "pciaddr"}

// ErrNotPublished is the error of a device that is not among those of its driver, as for half a minute after the kubelet was
// started again, which removes all slices of the node.
var ErrNotPublished = errors.New("does not publish its device")

// GPUs returns the IDs of the GPUs that other drivers have given to a claim on this node. slices are what the
// drivers publish for it. Devices that are no GPU of the node do not count; those of vendors, by their drivers' names, are
// GPUs, and one whose PCI address is not published is an error.
func GPUs(n *node.Node, ours string, vendors []string, published []api.ResourceSlice, c *api.ResourceClaim) (ids []string, err error) {
	published = newest(published)
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == ours {
			continue
		}
		d, there := deviceOf(published, r)
		address, found := addressOf(d)
		i := slices.IndexFunc(n.GPUs, func(g node.GPU) bool { return found && g.PCI == address })
		switch {
		case i >= 0 && !slices.Contains(ids, n.GPUs[i].ID): // two parts of a GPU are one GPU
			ids = append(ids, n.GPUs[i].ID)
		case i < 0 && slices.Contains(vendors, r.Driver) && found:
			return nil, fmt.Errorf("device %s of %s is at %v, and no GPU with memory of its own is seen there", r.Device, r.Driver, address)
		case i < 0 && slices.Contains(vendors, r.Driver) && !there:
			return nil, fmt.Errorf("%s %w %s for this node now: it is not known which GPU it is", r.Driver, ErrNotPublished, r.Device)
		case i < 0 && slices.Contains(vendors, r.Driver):
			return nil, fmt.Errorf("device %s of %s has no PCI address among its attributes (%s): it is not known which GPU it is", r.Device, r.Driver, deviceattribute.StandardDeviceAttributePCIBusID)
		}
	}
	return ids, nil
}

// deviceOf returns the device of an allocation as its driver publishes it now.
func deviceOf(published []api.ResourceSlice, r api.DeviceRequestAllocationResult) (api.Device, bool) {
	for _, s := range published {
		if s.Spec.Driver != r.Driver || s.Spec.Pool.Name != r.Pool {
			continue
		}
		if i := slices.IndexFunc(s.Spec.Devices, func(d api.Device) bool { return d.Name == r.Device }); i >= 0 {
			return s.Spec.Devices[i], true
		}
	}
	return api.Device{}, false
}

// newest returns the slices that count: those of the newest generation of their pool. While a driver publishes anew,
// older ones are still there, and a device of the same name may have been another one.
func newest(published []api.ResourceSlice) []api.ResourceSlice {
	type pool struct{ driver, name string }
	last := map[pool]int64{}
	of := func(s api.ResourceSlice) pool { return pool{s.Spec.Driver, s.Spec.Pool.Name} }
	for _, s := range published {
		last[of(s)] = max(last[of(s)], s.Spec.Pool.Generation)
	}
	return slices.DeleteFunc(slices.Clone(published), func(s api.ResourceSlice) bool { return s.Spec.Pool.Generation < last[of(s)] })
}

// addressOf returns the PCI address that a driver has published of a device: the standard attribute, else one of its own.
func addressOf(d api.Device) (pciaddr.Addr, bool) {
	if a, ok := address(d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID]); ok {
		return a, true
	}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		id := string(name)[strings.LastIndex(string(name), "/")+1:]
		if a, ok := address(d.Attributes[name]); ok && slices.Contains(addresses, strings.ToLower(id)) {
			return a, true
		}
	}
	return pciaddr.Addr{}, false
}

func address(v api.DeviceAttribute) (pciaddr.Addr, bool) {
	if v.StringValue == nil {
		return pciaddr.Addr{}, false
	}
	a, err := pciaddr.Parse(*v.StringValue)
	return a, err == nil
}
