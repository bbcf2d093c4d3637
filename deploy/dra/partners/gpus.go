// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"fmt"
	"slices"
	"strings"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// addresses are the names, without a domain, of attributes in which drivers publish a device's PCI address.
var addresses = []string{"pcibusid", "pciaddress", "pciaddr"}

// GPUs returns the IDs of the GPUs that other drivers have given to a claim on this node. slices are what the
// drivers publish for it. Devices that are no GPU of the node do not count; those of vendors, by their drivers' names, are
// GPUs, and one whose PCI address is not published is an error.
func GPUs(n *node.Node, ours string, vendors []string, published []api.ResourceSlice, c *api.ResourceClaim) (ids []string, err error) {
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == ours {
			continue
		}
		address, found := addressOf(published, r)
		i := slices.IndexFunc(n.GPUs, func(g node.GPU) bool { return found && g.PCI == address })
		switch {
		case i >= 0 && !slices.Contains(ids, n.GPUs[i].ID): // two parts of a GPU are one GPU
			ids = append(ids, n.GPUs[i].ID)
		case i < 0 && slices.Contains(vendors, r.Driver) && found:
			return nil, fmt.Errorf("device %s of %s is at %v, and no GPU with memory of its own is seen there", r.Device, r.Driver, address)
		case i < 0 && slices.Contains(vendors, r.Driver):
			return nil, fmt.Errorf("device %s of %s has no PCI address among its attributes (%s): it is not known which GPU it is", r.Device, r.Driver, deviceattribute.StandardDeviceAttributePCIBusID)
		}
	}
	return ids, nil
}

// addressOf returns the PCI address that a driver has published of a device.
func addressOf(published []api.ResourceSlice, r api.DeviceRequestAllocationResult) (pciaddr.Addr, bool) {
	for _, s := range published {
		if s.Spec.Driver != r.Driver || s.Spec.Pool.Name != r.Pool {
			continue
		}
		for _, d := range s.Spec.Devices {
			if d.Name != r.Device {
				continue
			}
			if a, ok := address(d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID]); ok {
				return a, true
			}
			for name, value := range d.Attributes {
				id := string(name)[strings.LastIndex(string(name), "/")+1:]
				if a, ok := address(value); ok && slices.Contains(addresses, strings.ToLower(id)) {
					return a, true
				}
			}
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
