// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// topology is a machine of the corpus.
func topology(t *testing.T, name string) *node.Node {
	t.Helper()
	n := clustertest.Topologies(t)[name]
	if n == nil {
		t.Fatal("no machine", name)
	}
	return n
}

// specification reads the only file for the container's runtime.
func (m *machine) specification(t *testing.T) (s specs.Spec) {
	t.Helper()
	files := m.specifications(t)
	if len(files) != 1 {
		t.Fatalf("there are %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tries starts a pod with a pair, and waits until it runs.
func (m *machine) tries(t *testing.T, namespace, name string) *core.Pod {
	t.Helper()
	p := create(t, newPod(namespace, name, "pair", m.name))
	placed(t, p, true)
	runs(t, p, m)
	return p
}

// quiet fails the test if the driver has logged an error that was not expected.
func (m *machine) quiet(t *testing.T) {
	t.Helper()
	if s := m.said(); len(s) > 0 {
		t.Errorf("%s: %q", m.name, s)
	}
}

// A pod gets its pair from the scheduler, and the kubelet's manager of claims asks the driver for it. The container's
// runtime gets the device files and the variables. They stay while the driver and the kubelet are started again, and
// the end of the pod removes them.
func TestKubelet(t *testing.T) {
	useCluster(t)
	addNamespace(t, "kubelet", classes())
	m := addMachine(t, "kubelet", topology(t, "dgx-h100"), time.Hour)
	p := m.tries(t, "kubelet", "first")
	pair := m.known(t, devicesOf(t, p)[0])[0]
	had, _ := m.kubelet.Devices(p.UID)
	s := m.specification(t)
	if len(s.Devices) != 1 || len(had) != 1 || had[0] != s.Kind+"="+s.Devices[0].Name {
		t.Fatalf("the runtime is told %q, and has %+v", had, s)
	}
	n, _ := m.look(t.Context())
	var files []string
	for _, f := range s.Devices[0].ContainerEdits.DeviceNodes {
		files = append(files, f.HostPath)
	}
	for _, f := range slices.Concat(n.GPU(pair.GPU).Files.Needed, n.NIC(pair.NIC).Files.Needed) {
		if !slices.Contains(files, f) {
			t.Errorf("the container does not get %s, but %q", f, files)
		}
	}
	if want := fmt.Sprintf("GPURDMA_PAIRS=%v=%s", n.GPU(pair.GPU).PCI, n.NIC(pair.NIC).Name); !slices.Contains(s.Devices[0].ContainerEdits.Env, want) {
		t.Errorf("no %q in %q", want, s.Devices[0].ContainerEdits.Env)
	}

	m.stop() // the driver
	waits := create(t, newPod("kubelet", "waits", "pair", m.name))
	placed(t, waits, true)
	wait(t, "the kubelet misses the driver", func() (bool, string) {
		err := m.kubelet.Refused(waits.UID)
		return err != nil && strings.Contains(err.Error(), resources.Driver), fmt.Sprint(err)
	})
	m.startDriver(t)
	runs(t, waits, m)

	m.kubelet.Stop()
	m.startKubelet(t)
	for _, q := range []*core.Pod{p, waits} {
		wait(t, "the new kubelet knows "+q.Name, func() (bool, string) {
			_, ok := m.kubelet.Devices(q.UID)
			return ok, fmt.Sprint(m.kubelet.Refused(q.UID))
		})
	}
	if now, _ := m.kubelet.Devices(p.UID); !slices.Equal(now, had) {
		t.Errorf("the new kubelet tells the runtime %q, the old one %q", now, had)
	}
	given(t, m)

	// The kubelet gives back a claim that an earlier driver has prepared for an earlier kubelet.
	remove(t, p, false)
	remove(t, waits, false)
	if left := m.specifications(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	m.quiet(t)
}

// The kubelet removes the slices of a driver that does not come back. One that does publishes them again.
func TestDriverAway(t *testing.T) {
	useCluster(t)
	addNamespace(t, "away", classes())
	m := addMachine(t, "away", topology(t, "hgx"), time.Hour)
	p := m.tries(t, "away", "stays")
	m.stop()
	wait(t, "the kubelet removes the slices", func() (bool, string) {
		k := len(slicesOf(t, m.name))
		return k == 0, fmt.Sprint(k, " slices")
	})
	q := create(t, newPod("away", "waits", "pair", m.name))
	if placed(t, q, false) {
		t.Error("a pod is placed by slices that are not there")
	}
	m.startDriver(t)
	placed(t, q, true)
	runs(t, q, m)
	if len(given(t, m)) != 2 {
		t.Error("the two pods do not have two pairs")
	}
	remove(t, p, false)
	remove(t, q, false)
	m.quiet(t)
}

// tainted reports the taint of a device.
func tainted(value string) func(api.Device) bool {
	return func(d api.Device) bool {
		return len(d.Taints) == 1 && d.Taints[0].Effect == api.DeviceTaintEffectNoSchedule && d.Taints[0].Value == value
	}
}

// A pair that breaks while a pod has it: the pod goes on and its status says so, and no other pod gets the pair, its
// GPU or its NIC. After the pair has healed and the pod has ended, it is given away again.
func TestPairBreaks(t *testing.T) {
	useCluster(t)
	addNamespace(t, "breaks", classes())
	m := addMachine(t, "breaks", topology(t, "hgx-6.14-translating-no-acs"), time.Second) // 8 pairs, one for each GPU
	p := m.tries(t, "breaks", "has-it")
	device := devicesOf(t, p)[0]
	pair := m.known(t, device)[0]
	m.set(t, pair.GPU, pair.NIC, chain.Staged, "a port redirects")
	m.published(t, device, tainted("staged"))
	health := func(want core.ResourceHealthStatus) {
		t.Helper()
		wait(t, "the pod's status says "+string(want), func() (bool, string) {
			s := get(t, p).Status.ContainerStatuses
			if len(s) != 1 || len(s[0].AllocatedResourcesStatus) != 1 {
				return false, fmt.Sprintf("%+v", s)
			}
			r := s[0].AllocatedResourcesStatus[0].Resources
			return len(r) == 1 && r[0].Health == want, fmt.Sprintf("%+v", r)
		})
	}
	health(core.ResourceHealthStatusUnhealthy)

	n, _ := m.look(t.Context())
	rest := most(&n, given(t, m, pair))
	if rest != 7 {
		t.Errorf("%d pairs are left, want 7", rest)
	}
	var others []*core.Pod
	for i := range rest {
		others = append(others, m.tries(t, "breaks", fmt.Sprint("other-", i)))
	}
	late := create(t, newPod("breaks", "late", "pair", m.name))
	if placed(t, late, false) {
		t.Errorf("%s has %v: a pair that is broken or in use", late.Name, devicesOf(t, late))
	}
	given(t, m, pair)
	if now := get(t, p); now.Status.Phase != core.PodRunning || now.DeletionTimestamp != nil || claimOf(t, p).Status.Allocation == nil {
		t.Errorf("the pod with the broken pair does not go on: %+v", now.Status)
	}

	m.set(t, pair.GPU, pair.NIC, chain.Direct, "")
	m.published(t, device, func(d api.Device) bool { return len(d.Taints) == 0 })
	health(core.ResourceHealthStatusHealthy)
	if get(t, late).Spec.NodeName != "" {
		t.Error("the pair is given away a second time")
	}
	remove(t, p, false)
	placed(t, late, true)
	runs(t, late, m)
	if got := devicesOf(t, late); len(got) != 1 || got[0] != device {
		t.Errorf("it has %v, want %s", got, device)
	}
	given(t, m)
	for _, q := range append(others, late) {
		remove(t, q, false)
	}
	m.quiet(t)
}

// A pair that breaks after the scheduler has given it away and before the pod starts: the driver refuses it with the
// reason and with the NICs that the GPU reaches instead. The pod does not start, can be deleted, and leaves nothing.
func TestPairBreaksBeforeStart(t *testing.T) {
	useCluster(t)
	addNamespace(t, "early", classes())
	m := addMachine(t, "early", topology(t, "dgx-h100"), time.Second)
	m.kubelet.Stop() // no pod starts
	p := create(t, newPod("early", "refused", "pair", m.name))
	placed(t, p, true)
	device := devicesOf(t, p)[0]
	pair := m.known(t, device)[0]
	m.set(t, pair.GPU, pair.NIC, chain.Refused, "the driver takes no dma-buf")
	m.published(t, device, tainted("refused"))
	m.startKubelet(t)
	var refused error
	wait(t, "the driver refuses the pair", func() (bool, string) {
		refused = m.kubelet.Refused(p.UID)
		return refused != nil && strings.Contains(refused.Error(), "not direct any more"), fmt.Sprint(refused)
	})
	n, _ := m.look(t.Context())
	want := []string{"the driver takes no dma-buf", pair.GPU, pair.NIC, "delete the pod"}
	for _, x := range n.NICs {
		if now, _ := n.Pair(pair.GPU, x.ID); now.Outcome == chain.Direct {
			want = append(want, x.Name)
		}
	}
	for _, w := range want {
		if refused != nil && !strings.Contains(refused.Error(), w) {
			t.Errorf("%q is not in: %v", w, refused)
		}
	}
	t.Log(refused)
	if s := m.specifications(t); len(s) > 0 || get(t, p).Status.Phase == core.PodRunning {
		t.Errorf("%v, %s", s, get(t, p).Status.Phase)
	}
	again := m.tries(t, "early", "another")
	if got := m.known(t, devicesOf(t, again)[0])[0]; got.Same(pair) || got.GPU == pair.GPU || got.NIC == pair.NIC {
		t.Errorf("the next pod has %v", got)
	}
	remove(t, p, false)
	remove(t, again, false)
	if s := m.specifications(t); len(s) > 0 {
		t.Errorf("%v is left", s)
	}
	for _, s := range m.said() {
		if !strings.Contains(s, "not direct any more") {
			t.Error(s)
		}
	}
}

// A claim that cannot be met, and which the scheduler tries for long, does not hold the pods beside it.
func TestImpossibleClaim(t *testing.T) {
	useCluster(t)
	nine := ofClass("pair")
	nine.Devices.Requests[0].Exactly.Count = 9
	templates := classes()
	templates["nine"] = nine
	addNamespace(t, "impossible", templates)
	m := addMachine(t, "impossible", topology(t, "dgx-h100"), time.Hour)
	p := create(t, newPod("impossible", "nine", "nine", m.name))
	var said string
	wait(t, "the scheduler answers", func() (bool, string) {
		for _, c := range get(t, p).Status.Conditions {
			if c.Type == core.PodScheduled && c.Status == core.ConditionFalse {
				said = c.Reason + ": " + c.Message
			}
		}
		return said != "", ""
	})
	t.Log(said)
	n, _ := m.look(t.Context())
	all := most(&n, nil)
	var pods []*core.Pod
	for i := range all {
		pods = append(pods, create(t, newPod("impossible", fmt.Sprint("possible-", i), "pair", m.name)))
	}
	for _, q := range pods {
		placed(t, q, true)
		runs(t, q, m)
	}
	if len(given(t, m)) != all || get(t, p).Spec.NodeName != "" {
		t.Errorf("%d pairs are given away, want %d", len(given(t, m)), all)
	}
	for _, q := range pods {
		remove(t, q, false)
	}
	remove(t, p, true)
	m.quiet(t)
}

// A pod with a pair names no claim: the class has a name for an extended resource.
func TestExtendedResource(t *testing.T) {
	useCluster(t)
	addNamespace(t, "extended", nil)
	m := addMachine(t, "extended", topology(t, "dgx-h100"), time.Hour)
	p := create(t, &core.Pod{
		ObjectMeta: meta.ObjectMeta{Namespace: "extended", Name: "two"},
		Spec: core.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/hostname": m.name},
			Containers: []core.Container{{Name: "job", Image: "registry.example/job", Resources: core.ResourceRequirements{
				Limits: core.ResourceList{"p2p.gpurdma.github.io/pair": resource.MustParse("2")},
			}}},
		},
	})
	placed(t, p, true)
	runs(t, p, m)
	if has := given(t, m); len(has) != 2 {
		t.Errorf("it has %v", has)
	}
	if devices, _ := m.kubelet.Devices(p.UID); len(devices) != 2 {
		t.Errorf("the runtime is told %q", devices)
	}
	remove(t, p, false)
	if s := m.specifications(t); len(s) > 0 {
		t.Errorf("%v is left", s)
	}
	m.quiet(t)
}
