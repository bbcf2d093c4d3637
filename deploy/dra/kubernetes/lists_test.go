// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// byLists is for claims that match a GPU's PCI address with the list of a NIC's partners: the scheduler finds each pair that
// is direct, and no other one.
func byLists(namespace string) *way {
	return &way{
		namespace: namespace,
		claim: func(m *machine, gpu string) api.ResourceClaimSpec {
			c := matching(resources.Partners, gpuAndNIC(selects(m, gpu)...))
			c.Devices.Requests[0].Exactly.DerivedAttributes = []api.DeviceDerivedAttribute{
				{Name: resources.Partners, Expression: `device.attributes["resource.kubernetes.io"].pciBusID`},
			}
			return c
		},
		can: func(_ *machine, n *node.Node, taken []pairs.Pair, gpu string) bool {
			return slices.ContainsFunc(n.Pairs, func(p node.Pair) bool {
				return (gpu == "" || gpu == p.GPU) && isFree(n, taken, p.GPU, p.NIC)
			})
		},
	}
}

// With the gates for lists and for derived attributes, the scheduler takes a NIC that lists the GPU: no pod is refused while
// a direct pair is free, and the driver refuses none. Claims by pcieRoot and without a constraint go on.
func TestNICLists(t *testing.T) {
	ofLists.use(t)
	seed := newSeed(t)
	lists, answers := addWay(t, byLists("by-lists")), addWay(t, byAnswers("by-answers"))
	var machines []*machine
	for _, name := range besideMachines {
		machines = append(machines, addBeside(t, label(name), topology(t, name), time.Hour, true))
	}
	sums := everywhere(t, seed, machines, lists, answers)
	t.Logf("by lists: %v", sums[0])
	t.Logf("by answers: %v", sums[1])
	if o := sums[0]; o.bad > 0 || o.refused > 0 || o.refusals > 0 || o.placed == 0 {
		t.Errorf("by lists: %v", o)
	}
	if o := sums[1]; o.bad > 0 || o.placed == 0 {
		t.Errorf("by answers: %v", o)
	}
}

// The example of a claim by lists gets its GPU and NIC.
func TestListExamples(t *testing.T) {
	ofLists.use(t)
	kinds := accepted(t, listsBase, listExamples)
	if kinds["Pod"] != 1 || kinds["ResourceClaimTemplate"] != 1 || kinds["DaemonSet"] != 1 {
		t.Error(kinds)
	}
	m := addBeside(t, "list-examples", topology(t, "test-bed-nested"), time.Hour, true)
	runExamples(t, listExamples, m, map[string]int{"by-list": 1})
	m.refusalsOnly(t)
	if args := m.pod.Spec.Containers[0].Args; !slices.Contains(args, "--lists") || !slices.Contains(args, "--publish=nics") {
		t.Error(args)
	}
}

// runExamples runs the pods of a kustomization on a machine, each with as many GPUs and NICs as it asks for.
func runExamples(t *testing.T, dir string, m *machine, want map[string]int) {
	t.Helper()
	wait(t, "the service account", func() (bool, string) {
		_, err := admin.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", meta.GetOptions{})
		return err == nil, ""
	})
	var pods []*core.Pod
	for _, o := range render(t, dir) {
		if err := apply(t.Context(), o, false); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Pod" {
			pods = append(pods, get(t, &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}))
		}
	}
	if len(pods) != len(want) {
		t.Errorf("%d pods, want %d", len(pods), len(want))
	}
	for _, p := range pods {
		placed(t, p, true)
		runs(t, p, m)
		c := claimOf(t, p)
		if k := len(c.Status.Allocation.Devices.Results); k != 2*want[p.Name] || !agreed(c) {
			t.Errorf("%s has %d devices, want %d GPUs and NICs; %+v", p.Name, k, want[p.Name], c.Status.Devices)
		}
	}
	for _, p := range pods {
		remove(t, p, false)
	}
}
