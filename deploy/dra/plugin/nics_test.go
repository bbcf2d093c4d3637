// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/pciaddr"
)

const vendor = "gpu.example.com"

// newBeside is a driver beside another one, which has published the GPUs.
func newBeside(t *testing.T, n *node.Node) *bed {
	t.Helper()
	var s resourceslice.Slice
	for i := range n.GPUs {
		n.GPUs[i].PCI = pciaddr.Addr{Bus: uint8(i + 1)}
		address := n.GPUs[i].PCI.String()
		s.Devices = append(s.Devices, api.Device{Name: n.GPUs[i].ID, Attributes: map[api.QualifiedName]api.DeviceAttribute{deviceattribute.StandardDeviceAttributePCIBusID: {StringValue: &address}}})
		n.GPUs[i].Files.Needed = []string{"/dev/null"} // which the other driver gives
	}
	b := &bed{Cluster: clustertest.New(), n: n, dir: t.TempDir(), boot: "boot-1"}
	b.Cluster.Publish(vendor, resourceslice.Pool{Slices: []resourceslice.Slice{s}})
	b.beside = &Beside{Vendors: []string{vendor}, Published: func(context.Context) ([]api.ResourceSlice, error) { return b.Slices(), nil }}
	b.restart(t)
	return b
}

// pod places a pod that asks for a GPU and a NIC. Expressions choose the GPU.
func (b *bed) pod(t *testing.T, expressions ...string) *api.ResourceClaim {
	t.Helper()
	return b.Allocate(t, nil, clustertest.Request("gpu", vendor, 1, expressions...), clustertest.Request("nic", resources.Driver, 1))
}

// at selects the GPU of an index.
func (b *bed) at(i int) string {
	return fmt.Sprintf("device.attributes[%q].pciBusID == %q", "resource.kubernetes.io", b.n.GPUs[i].PCI)
}

// offered are the NICs that the driver publishes, with their taints.
func (b *bed) offered() (list []string) {
	for _, s := range b.Slices() {
		for _, d := range s.Spec.Devices {
			if s.Spec.Driver == resources.Driver {
				text := d.Name
				for _, taint := range d.Taints {
					text += " " + taint.Value
				}
				list = append(list, text)
			}
		}
	}
	return list
}

// spec reads the specification of a claim.
func (b *bed) spec(t *testing.T, c *api.ResourceClaim) (s specs.Spec) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "cdi", "*-"+string(c.UID)+".json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A claim whose NIC is no partner of its GPU is refused, and the scheduler then finds the partner. The container
// gets the NIC alone.
func TestNICOfAnotherGPU(t *testing.T) {
	n := machine(2, 2)
	for _, i := range []int{1, 2} { // g0 and n1, g1 and n0
		n.Pairs[i].Outcome, n.Pairs[i].Why = chain.Staged, "a port redirects"
	}
	b := newBeside(t, n)
	c := b.pod(t, b.at(1))
	if got := clustertest.Names(c); fmt.Sprint(got) != "[g1 nic-n0]" {
		t.Fatal(got)
	}
	// A pod that is bound has its devices for good: that the kubelet asks again and again changes no order.
	for range 3 {
		if got := b.prepareOne(t, c); got.Err == nil {
			t.Fatal("it is prepared")
		}
	}
	b.publishNow(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 nic-n1]" {
		t.Errorf("%s: a refusal to the kubelet has changed the order", got)
	}
	no, err := b.Agree(t.Context(), c)
	const want = "NIC mlx5_0 reaches no GPU of the claim directly: GPU 0000:02:00.0 and NIC mlx5_0: a port redirects; GPU 0000:02:00.0 is reached by mlx5_1"
	if err != nil || no == nil || no.Error() != want {
		t.Fatalf("%v, %v, want %s", no, err, want)
	}
	if got := b.prepareOne(t, c); got.Err == nil || got.Err.Error() != want+"; delete the pod, so that it is placed again" || b.left(t) != 0 {
		t.Fatalf("%v, %d specifications", got.Err, b.left(t))
	}
	b.Release(c)
	b.publishNow(t)
	c = b.pod(t, b.at(1))
	if got := clustertest.Names(c); fmt.Sprint(got) != "[g1 nic-n1]" {
		t.Fatal(got)
	}
	if no, err := b.Agree(t.Context(), c); no != nil || err != nil {
		t.Fatal(no, err)
	}
	b.publishNow(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 nic-n1]" {
		t.Errorf("%s: the GPU that has its NIC is first still", got)
	}
	got := b.prepareOne(t, c)
	if got.Err != nil || len(got.Devices) != 1 || got.Devices[0].DeviceName != "nic-n1" || got.Devices[0].Requests[0] != "nic" {
		t.Fatalf("%+v", got)
	}
	d := b.spec(t, c).Devices
	if len(d) != 1 || len(d[0].ContainerEdits.DeviceNodes) != 0 || !slices.Contains(d[0].ContainerEdits.Env, "GPURDMA_PAIRS=0000:02:00.0=mlx5_1") ||
		!slices.Contains(d[0].ContainerEdits.Env, "NCCL_IB_HCA==mlx5_1") {
		t.Errorf("%+v", d)
	}
	// A running pod keeps what it has, and the kubelet is told.
	b.n.Pairs[3].Outcome, b.n.Pairs[3].Why = chain.Lost, "a port drops"
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Error(got.Err)
	}
	s, err := checkpoint.Read(b.State, b.Boot)
	if err != nil {
		t.Fatal(err)
	}
	if h := healthOf(s, b.n, b.seen); len(h) != 1 || h[0].Message != "a port drops" {
		t.Errorf("%+v", h)
	}
	b.unprepareOne(t, c)
	if b.left(t) != 0 {
		t.Error("a specification is left")
	}
}

// A claim without a GPU gets its NIC. Without an answer of the API server, nothing is prepared, and the scheduler
// gets no answer either.
func TestNICAlone(t *testing.T) {
	b := newBeside(t, machine(1, 1))
	c := b.Allocate(t, nil, clustertest.Request("nic", resources.Driver, 1))
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	if env := b.spec(t, c).Devices[0].ContainerEdits.Env; !slices.Contains(env, "GPURDMA_PAIRS=") || !slices.Contains(env, "UCX_NET_DEVICES=mlx5_0:1") {
		t.Error(env)
	}
	s, err := checkpoint.Read(b.State, b.Boot)
	if err != nil {
		t.Fatal(err)
	}
	if h := healthOf(s, b.n, b.seen); len(h) != 1 || h[0].Message != "" {
		t.Errorf("%+v", h)
	}
	b.n.NICs = nil
	if h := healthOf(s, b.n, b.seen); len(h) != 1 || h[0].Message != "NIC n0 is not there" {
		t.Errorf("%+v", h)
	}
	b.unprepareOne(t, c)

	// The other driver's slices are away for a while after the kubelet was started again.
	b = newBeside(t, machine(1, 1))
	c = b.pod(t)
	published := b.Beside.Published
	b.Beside.Published = func(context.Context) ([]api.ResourceSlice, error) { return nil, nil }
	const want = vendor + " does not publish its device g0 for this node now: it is not known which GPU it is"
	if got := b.prepareOne(t, c); got.Err == nil || got.Err.Error() != want+"; the kubelet asks again" || b.left(t) != 0 {
		t.Errorf("%v, %d specifications", got.Err, b.left(t))
	}
	if no, err := b.Agree(t.Context(), c); err != nil || no == nil || no.Error() != want {
		t.Error(no, err)
	}
	b.Beside.Published = published
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Error(got.Err)
	}

	b = newBeside(t, machine(1, 1))
	down := errors.New("the API server is down")
	b.Beside.Published = func(context.Context) ([]api.ResourceSlice, error) { return nil, down }
	c = b.pod(t)
	if got := b.prepareOne(t, c); !errors.Is(got.Err, down) || b.left(t) != 0 {
		t.Errorf("%v, %d specifications", got.Err, b.left(t))
	}
	if no, err := b.Agree(t.Context(), c); no != nil || !errors.Is(err, down) {
		t.Error(no, err)
	}
}

// A claim that is refused again and again, though a partner of its GPU is free, closes the NICs for a while. One whose partner another
// pod has changes nothing.
func TestNICsClosed(t *testing.T) {
	n := machine(2, 2)
	n.Pairs[1].Outcome, n.Pairs[2].Outcome = chain.Staged, chain.Staged // g0 and n1, g1 and n0
	b := newBeside(t, n)
	refused := func(c *api.ResourceClaim) {
		t.Helper()
		for range closesAfter {
			if no, err := b.Agree(t.Context(), c); no == nil || err != nil {
				t.Fatal(no, err)
			}
		}
		b.publishNow(t)
	}
	c := b.pod(t, b.at(1))
	refused(c)
	if got := fmt.Sprint(b.offered()); got != "[nic-n1 now nic-n0 now]" {
		t.Error(got)
	}
	b.Release(c)
	if c := b.pod(t, b.at(1)); c.Status.Allocation != nil {
		t.Error(clustertest.Names(c))
	}
	b.wait.opens = time.Now()
	b.publishNow(t)
	c = b.pod(t, b.at(1))
	if got := fmt.Sprint(clustertest.Names(c)); got != "[g1 nic-n1]" {
		t.Fatal(got)
	}
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	b.wait.list = nil
	part := c.DeepCopy() // of a GPU that the other claim has, too
	part.UID = "part"
	part.Status.Allocation.Devices.Results[1].Device = "nic-n0"
	refused(part)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 nic-n1]" || len(b.wait.list) > 0 {
		t.Error(got, b.wait.list)
	}
}

// A NIC is with one claim at a time: the pod that had it may run still, though the API server has forgotten the pod. NICs
// without a GPU have nothing in common.
func TestNICOfAnotherClaim(t *testing.T) {
	b := newBeside(t, machine(2, 2))
	alone := func() *api.ResourceClaim { return b.Allocate(t, nil, clustertest.Request("nic", resources.Driver, 1)) }
	first, second := alone(), alone()
	for _, c := range []*api.ResourceClaim{first, second} {
		if got := b.prepareOne(t, c); got.Err != nil {
			t.Fatal(got.Err)
		}
	}
	b.Release(first)
	c := b.pod(t)
	got := b.prepareOne(t, c)
	if want := fmt.Sprintf("NIC mlx5_0 is with the claim default/%s; delete the pod, so that it is placed again", first.Name); got.Err == nil || got.Err.Error() != want {
		t.Errorf("%v, want %s", got.Err, want)
	}
	b.unprepareOne(t, first)
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Error(got.Err)
	}
	look := b.Allocate(t, nil, clustertest.Request("gpu", vendor, 1)) // and the NIC of another claim, for a look
	admin := true
	look.Status.Allocation.Devices.Results = append(look.Status.Allocation.Devices.Results, api.DeviceRequestAllocationResult{
		Request: "nic", Driver: resources.Driver, Pool: clustertest.Node, Device: "nic-n0", AdminAccess: &admin,
	})
	if got := b.prepareOne(t, look); got.Err != nil {
		t.Error(got.Err)
	}
}

// A NIC that reaches no GPU any more, or is not there, stays in the slices with a taint. It does so after a restart of the
// driver, too. One that never reached a GPU is not offered.
func TestNICGoes(t *testing.T) {
	n := machine(1, 3)
	n.Pairs[2].Outcome = chain.OutcomeUnknown
	b := newBeside(t, n)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 nic-n1]" {
		t.Error(got)
	}
	n.Pairs[0].Outcome = chain.Staged
	n.NICs, n.Pairs = slices.Delete(n.NICs, 1, 2), slices.Delete(n.Pairs, 1, 2)
	b.publishNow(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 no-gpu nic-n1 gone]" {
		t.Error(got)
	}
	b.restart(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 no-gpu nic-n1 gone]" {
		t.Error(got)
	}
	n.Pairs[0].Outcome = chain.Direct
	b.publishNow(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n0 nic-n1 gone]" {
		t.Error(got)
	}
	c := b.Allocate(t, nil, clustertest.Request("nic", resources.Driver, 1))
	c.Status.Allocation.Devices.Results[0].Device = "nic-n1"
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "device nic-n1 is not there") {
		t.Error(got.Err)
	}
	// The scheduler gets a no, too, also if the claim has another NIC that is there.
	two := c.DeepCopy()
	there := two.Status.Allocation.Devices.Results[0]
	there.Device = "nic-n0"
	two.Status.Allocation.Devices.Results = append(two.Status.Allocation.Devices.Results, there,
		api.DeviceRequestAllocationResult{Request: "gpu", Driver: vendor, Pool: clustertest.Node, Device: "g0"})
	if no, err := b.Agree(t.Context(), two); err != nil || no == nil || !strings.Contains(no.Error(), "device nic-n1 is not there") {
		t.Error(no, err)
	}
	c.Status.Allocation.Devices.Results[0].Device = "nic-x"
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "device nic-x is not there") {
		t.Error(got.Err)
	}
}

// The NICs are in the order of the GPUs that the scheduler tries: pods that come one after the other get partners at
// once. If the other driver's slices cannot be read, the order stays.
func TestOrderOfNICs(t *testing.T) {
	n := machine(3, 3)
	for i := range n.Pairs {
		if i != 2 && i != 3 && i != 7 { // g0 and n2, g1 and n0, g2 and n1
			n.Pairs[i].Outcome = chain.Staged
		}
	}
	b := newBeside(t, n)
	var reversed resourceslice.Slice
	for _, s := range b.Slices() {
		if s.Spec.Driver == vendor {
			reversed.Devices = slices.Clone(s.Spec.Devices)
			slices.Reverse(reversed.Devices)
		}
	}
	b.Cluster.Publish(vendor, resourceslice.Pool{Slices: []resourceslice.Slice{reversed}})
	b.publishNow(t)
	for i := range n.GPUs {
		c := b.pod(t)
		if no, err := b.Agree(t.Context(), c); no != nil || err != nil {
			t.Errorf("pod %d: %v, %v", i, no, err)
		}
	}
	b.Beside.Published = func(context.Context) ([]api.ResourceSlice, error) { return nil, errors.New("the API server is down") }
	b.publishNow(t)
	if got := fmt.Sprint(b.offered()); got != "[nic-n1 nic-n0 nic-n2]" {
		t.Error(got)
	}
}

// Pods come and go, pairs break and heal, and the driver is started again, at random. No NIC is with two pods, each
// pod that starts has a partner of its GPU, and at the end nothing is left.
func TestRandomPodsBeside(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(6, seed))
		b := newBeside(t, machine(4, 4))
		var running []*api.ResourceClaim
		prepared, refused := 0, 0
		for range 100 {
			switch k := r.IntN(10); {
			case k < 5:
				c := b.pod(t, b.at(r.IntN(len(b.n.GPUs))))
				if c.Status.Allocation == nil {
					continue
				}
				got := b.prepareOne(t, c)
				if got.Err != nil {
					refused++
					b.Release(c)
					b.publishNow(t)
					continue
				}
				prepared++
				names := clustertest.Names(c)
				if p, _ := b.n.Pair(names[0], strings.TrimPrefix(names[1], "nic-")); p.Outcome != chain.Direct {
					t.Fatalf("seed %d: %v was prepared, and is %v", seed, names, p.Outcome)
				}
				running = append(running, c)
			case k < 7 && len(running) > 0:
				i := r.IntN(len(running))
				b.unprepareOne(t, running[i])
				b.Release(running[i])
				running = slices.Delete(running, i, i+1)
			case k < 8:
				p := &b.n.Pairs[r.IntN(len(b.n.Pairs))]
				p.Outcome = []chain.Outcome{chain.Direct, chain.Staged, chain.OutcomeUnknown}[r.IntN(3)]
				p.Why = "a port redirects"
			case k < 9:
				b.restart(t)
			default:
				b.publishNow(t)
			}
			s, err := checkpoint.Read(b.State, b.Boot)
			if err != nil || len(s.Claims) != len(running) || b.left(t) != len(running) {
				t.Fatalf("%d pods, %d claims, %d specifications; %v", len(running), len(s.Claims), b.left(t), err)
			}
		}
		for _, c := range running {
			b.unprepareOne(t, c)
		}
		if b.left(t) > 0 || prepared == 0 || refused == 0 {
			t.Errorf("%d specifications are left, %d prepared, %d refused", b.left(t), prepared, refused)
		}
	}
}
