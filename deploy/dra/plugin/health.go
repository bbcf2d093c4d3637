// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// healthEvery is the time between two reports to the kubelet. After three times that, an old report counts as
// unknown.
const healthEvery = 10 * time.Second

// WatchHealthStatus tells the kubelet which devices of pods are as they were. It shows in the status of the pod.
func (p *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	p.mu.Lock()
	p.connected = time.Now()
	p.mu.Unlock()
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		s, err := checkpoint.Read(p.State, p.Boot)
		if err != nil {
			return err
		}
		p.mu.Lock()
		n, seen := p.last, p.seen
		p.mu.Unlock()
		if !seen.IsZero() { // also without a device: a driver that sends nothing counts as one that hangs
			select {
			case reports <- kubeletplugin.DeviceHealthReport{Devices: healthOf(s, &n, seen)}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// healthOf returns the health of all devices that pods have, by the last look.
func healthOf(s *checkpoint.State, n *node.Node, seen time.Time) (list []kubeletplugin.DeviceHealth) {
	if seen.IsZero() {
		return nil
	}
	for _, c := range s.Claims {
		for _, d := range c.Devices {
			h := kubeletplugin.DeviceHealth{PoolName: d.Pool, DeviceName: d.Name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: seen, HealthCheckTimeout: 3 * healthEvery}
			for _, x := range d.Pairs {
				switch now, ok := n.Pair(x.GPU, x.NIC); {
				case x.GPU == "" && n.NIC(x.NIC).ID != "": // a claim without a GPU
				case x.GPU == "":
					h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, fmt.Sprintf("NIC %s is not there", x.NIC)
				case !ok:
					h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, fmt.Sprintf("GPU %s or NIC %s is not there", x.GPU, x.NIC)
				case now.Outcome == chain.OutcomeUnknown && h.Health == kubeletplugin.HealthStatusHealthy:
					h.Health, h.Message = kubeletplugin.HealthStatusUnknown, now.Why
				case now.Outcome != chain.Direct && now.Outcome != chain.OutcomeUnknown:
					h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, now.Why
				}
			}
			list = append(list, h)
		}
	}
	return list
}
