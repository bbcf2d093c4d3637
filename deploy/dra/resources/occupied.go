// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"slices"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// Proving is the key of the taint of devices with a GPU or a NIC that is being tried.
const Proving = Driver + "/proving"

// Occupy gives all devices with the GPU or the NIC of a pair the taint Proving.
func Occupy(pool resourceslice.Pool, x pairs.Pair) {
	for _, s := range pool.Slices {
		for i := range s.Devices {
			if d := &s.Devices[i]; Has(d, x) {
				d.Taints = append(d.Taints, api.DeviceTaint{Key: Proving, Value: "now", Effect: api.DeviceTaintEffectNoSchedule})
			}
		}
	}
}

// Has reports that a device has the GPU or the NIC of a pair, by the counters that it takes.
func Has(d *api.Device, x pairs.Pair) bool {
	return slices.ContainsFunc(d.ConsumesCounters, func(u api.DeviceCounterConsumption) bool {
		_, gpu := u.Counters[gpuCounter(x.GPU)]
		_, nic := u.Counters[nicCounter(x.NIC)]
		return gpu || nic
	})
}

// Occupied reports that a device has the taint Proving.
func Occupied(d *api.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t api.DeviceTaint) bool { return t.Key == Proving && t.Effect == api.DeviceTaintEffectNoSchedule })
}
