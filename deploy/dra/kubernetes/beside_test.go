// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	conditions "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/plugin"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// addBeside adds a node whose GPUs a vendor's driver publishes, and whose NICs ours does, until the test ends.
func addBeside(t *testing.T, name string, n *node.Node, every time.Duration, lists bool) *machine {
	t.Helper()
	addGPUClass(t)
	m := addKubelet(t, name)
	m.every = every
	m.has(t, n)
	m.startGPUs(t)
	m.beside = &plugin.Beside{Vendors: []string{gpuDriver}, OthersRoots: true, Lists: lists, Published: plugin.PublishedFor(name, m.client.ResourceV1())}
	m.startDriver(t)
	wait(t, "the NICs of "+name+" are published", func() (bool, string) {
		s := slicesOf(t, name)
		return len(s) > 0 && len(s[0].Spec.Devices) > 0, fmt.Sprintf("%d slices, %q", len(s), m.said())
	})
	return m
}

// gpuAndNIC is a claim of a GPU and a NIC. Expressions choose the GPU.
func gpuAndNIC(expressions ...string) api.ResourceClaimSpec {
	gpu := &api.ExactDeviceRequest{DeviceClassName: gpuDriver}
	for _, e := range expressions {
		gpu.Selectors = append(gpu.Selectors, api.DeviceSelector{CEL: &api.CELDeviceSelector{Expression: e}})
	}
	return api.ResourceClaimSpec{Devices: api.DeviceClaim{Requests: []api.DeviceRequest{
		{Name: "gpu", Exactly: gpu},
		{Name: "nic", Exactly: &api.ExactDeviceRequest{DeviceClassName: "nic.p2p.gpurdma.github.io"}},
	}}}
}

// matching adds the constraint that all devices of a claim have the same value of an attribute.
func matching(attribute string, claim api.ResourceClaimSpec) api.ResourceClaimSpec {
	name := api.FullyQualifiedName(attribute)
	claim.Devices.Constraints = []api.DeviceConstraint{{MatchAttribute: &name}}
	return claim
}

// has is what a claim has on a machine: the IDs of its GPU and its NIC.
func (m *machine) pairOf(c *api.ResourceClaim) (p pairs.Pair) {
	if c.Status.Allocation == nil {
		return p
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		switch {
		case r.Pool != m.name:
		case r.Driver == gpuDriver:
			p.GPU = m.gpus[r.Device]
		case r.Driver == resources.Driver:
			p.NIC = strings.TrimPrefix(r.Device, "nic-")
		}
	}
	return p
}

// givenBeside returns what claims have on a machine. It fails the test if a GPU or a NIC is given twice, or if a pod that is bound has
// a pair that is not direct.
func givenBeside(t *testing.T, m *machine) (list []pairs.Pair) {
	t.Helper()
	claims, err := admin.ResourceV1().ResourceClaims("").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := admin.CoreV1().Pods("").List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + m.name})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := m.look(t.Context())
	owner := map[string]string{}
	for i := range claims.Items {
		c := &claims.Items[i]
		p := m.pairOf(c)
		for _, d := range []string{"gpu " + p.GPU, "nic " + p.NIC} {
			if owner[d] != "" && d != "gpu " && d != "nic " {
				t.Errorf("%s: %s is given to %s and to %s", m.name, d, owner[d], c.Name)
			}
			owner[d] = c.Name
		}
		bound := slices.ContainsFunc(pods.Items, func(q core.Pod) bool {
			return len(c.OwnerReferences) > 0 && c.OwnerReferences[0].UID == q.UID
		})
		if x, _ := n.Pair(p.GPU, p.NIC); bound && x.Outcome != chain.Direct {
			t.Errorf("%s: claim %s has %v, which is %v, and its pod is bound", m.name, c.Name, p, x.Outcome)
		}
		if p.GPU != "" || p.NIC != "" {
			list = append(list, p)
		}
	}
	return list
}

// answer is what our driver has said about the devices that a claim had.
type answer struct {
	pair pairs.Pair // names of the devices
	when string     // of the allocation
	yes  bool
	why  string
}

// answers are all that were seen, by the pod's UID.
type answers struct {
	mu   sync.Mutex
	seen map[types.UID][]answer
}

// watchAnswers sees all answers to claims of a namespace, until the test ends.
func watchAnswers(t *testing.T, namespace string) *answers {
	t.Helper()
	a := &answers{seen: map[types.UID][]answer{}}
	factory := informers.NewSharedInformerFactoryWithOptions(admin, 0, informers.WithNamespace(namespace))
	informer := factory.Resource().V1().ResourceClaims().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(x any) { a.add(x.(*api.ResourceClaim)) }, UpdateFunc: func(_, x any) { a.add(x.(*api.ResourceClaim)) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	return a
}

func (a *answers) add(c *api.ResourceClaim) {
	if c.Status.Allocation == nil || len(c.OwnerReferences) == 0 {
		return
	}
	x := answer{when: fmt.Sprint(c.Status.Allocation.AllocationTimestamp)}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == gpuDriver {
			x.pair.GPU = r.Device
		} else {
			x.pair.NIC = r.Device
		}
	}
	for _, d := range c.Status.Devices {
		for _, k := range d.Conditions {
			if d.Driver != resources.Driver || k.Status != meta.ConditionTrue {
				continue
			}
			x.yes, x.why = k.Type == resources.Partner, k.Message
			a.mu.Lock()
			if pod := c.OwnerReferences[0].UID; !slices.Contains(a.seen[pod], x) {
				a.seen[pod] = append(a.seen[pod], x)
			}
			a.mu.Unlock()
		}
	}
}

// of returns the answers for a pod.
func (a *answers) of(p *core.Pod) []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[p.UID])
}

// refused waits until a pod was refused, and returns the reason.
func (a *answers) refused(t *testing.T, p *core.Pod) (why string) {
	t.Helper()
	wait(t, "pod "+p.Name+" is refused", func() (bool, string) {
		all := a.of(p)
		if i := slices.IndexFunc(all, func(x answer) bool { return !x.yes }); i >= 0 {
			why = all[i].why
		}
		return why != "", fmt.Sprint(all, get(t, p).Status.Conditions)
	})
	return why
}

// told waits until the events of a pod say why it was refused.
func told(t *testing.T, p *core.Pod, why string) (text string) {
	t.Helper()
	why = why[:min(len(why), 80)] // an event has 1 KiB at most
	wait(t, "the events of pod "+p.Name+" have the reason", func() (bool, string) {
		all, err := admin.CoreV1().Events(p.Namespace).List(t.Context(), meta.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
		if err != nil {
			return false, err.Error()
		}
		var last string
		for _, e := range all.Items {
			last += e.Reason + ": " + e.Message + "\n"
			if e.Reason == "FailedScheduling" && strings.Contains(e.Message, why) {
				text = e.Message
			}
		}
		return text != "", last
	})
	return text
}

// agreed reports that a claim has the answer yes.
func agreed(c *api.ResourceClaim) bool {
	return slices.ContainsFunc(c.Status.Devices, func(d api.AllocatedDeviceStatus) bool {
		return d.Driver == resources.Driver && conditions.IsStatusConditionTrue(d.Conditions, resources.Partner)
	})
}
