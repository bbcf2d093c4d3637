// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/partners"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// besideMachines are those on which GPUs and NICs are of two drivers: machines where each pair is direct, where each device has a
// host bridge of its own, where all share one and few pairs are direct, and where GPUs and NICs are not equally many.
var besideMachines = []string{
	"case-06-gb300-azure", "dgx-h100", "hgx-6.14-translating-no-acs", "oci-bm-gpu-h100-8", "perftest-241-a30", "test-bed-fabric",
	"test-bed-fabric+EPYC+iommu", "test-bed-nested", "test-bed-switch", "ucx-6327-v100",
}

// tally counts pods that ask for a GPU and a NIC of two drivers.
type tally struct {
	outcome
	first    int // placed with the first devices that the scheduler took
	refusals int // by the driver, of the devices of pods that were placed
	most     int // of one pod
}

func (a *tally) add(b tally) {
	a.outcome.add(b.outcome)
	a.first, a.refusals, a.most = a.first+b.first, a.refusals+b.refusals, max(a.most, b.most)
}

func (a tally) String() string {
	return fmt.Sprintf("%d placed, %d of these at once and the others after %d refusals, %d at most of one; %d not direct; %d refused while a pair was free, %d while none was",
		a.placed, a.first, a.refusals, a.most, a.bad, a.refused, a.full)
}

// way is a way by which pods get NICs beside a vendor's GPUs.
type way struct {
	namespace string
	answers   *answers
	claim     func(m *machine, gpu string) api.ResourceClaimSpec // with a GPU of an ID, or any if it is ""
	// can reports whether the scheduler finds devices that the driver accepts, for a pod that asks for a GPU or for any.
	can func(m *machine, n *node.Node, taken []pairs.Pair, gpu string) bool
}

// addWay adds a namespace for a way.
func addWay(t *testing.T, w *way) *way {
	t.Helper()
	addNamespace(t, w.namespace, nil)
	w.answers = watchAnswers(t, w.namespace)
	return w
}

// selects is the expression that selects a GPU.
func selects(m *machine, gpu string) []string {
	if gpu == "" {
		return nil
	}
	return []string{fmt.Sprintf("device.attributes[%q].pciBusID == %q", "resource.kubernetes.io", m.node.GPU(gpu).PCI)}
}

// byAnswers is for claims without a constraint: the driver refuses what is not direct, and the scheduler chooses again. It takes the
// first GPU that is free, so that a pod is placed if that GPU has a partner which is free.
func byAnswers(namespace string) *way {
	return &way{
		namespace: namespace,
		claim:     func(m *machine, gpu string) api.ResourceClaimSpec { return gpuAndNIC(selects(m, gpu)...) },
		can: func(_ *machine, n *node.Node, taken []pairs.Pair, gpu string) bool {
			for _, g := range n.GPUs {
				if slices.ContainsFunc(taken, func(p pairs.Pair) bool { return p.GPU == g.ID }) || gpu != "" && gpu != g.ID {
					continue
				}
				return slices.ContainsFunc(n.NICs, func(x node.NIC) bool { return isFree(n, taken, g.ID, x.ID) })
			}
			return false
		},
	}
}

// byRoots is for claims by pcieRoot: no other pair has an attribute in common.
func byRoots(namespace string) *way {
	return &way{
		namespace: namespace,
		claim: func(m *machine, gpu string) api.ResourceClaimSpec {
			return matching(string(deviceattribute.StandardDeviceAttributePCIeRoot), gpuAndNIC(selects(m, gpu)...))
		},
		can: func(m *machine, n *node.Node, taken []pairs.Pair, gpu string) bool {
			roots := partners.Roots(n, m.beside.OthersRoots)
			return slices.ContainsFunc(n.Pairs, func(p node.Pair) bool {
				root, has := roots[p.NIC]
				g := n.GPU(p.GPU)
				return has && g.Root != nil && *g.Root == root && (gpu == "" || gpu == p.GPU) && isFree(n, taken, p.GPU, p.NIC)
			})
		},
	}
}

// isFree reports that a pair is direct, and that neither of the two is taken.
func isFree(n *node.Node, taken []pairs.Pair, gpu, nic string) bool {
	p, ok := n.Pair(gpu, nic)
	return ok && p.Outcome == chain.Direct && !slices.ContainsFunc(taken, pairs.Pair{GPU: gpu, NIC: nic}.Shares)
}

// pod makes a pod of a way.
func (w *way) pod(t *testing.T, m *machine, name, gpu string) *core.Pod {
	t.Helper()
	addTemplate(t, w.namespace, name, w.claim(m, gpu))
	return create(t, newPod(w.namespace, name, name, m.name))
}

// arrives waits until a pod runs, and counts it. It fails the test if a pair that is not direct was accepted, or one that is
// direct was refused.
func (w *way) arrives(t *testing.T, m *machine, p *core.Pod) (o tally) {
	t.Helper()
	placed(t, p, true)
	runs(t, p, m)
	n, _ := m.look(t.Context())
	all := w.answers.of(p)
	for _, a := range all {
		x, _ := n.Pair(m.gpus[a.pair.GPU], strings.TrimPrefix(a.pair.NIC, "nic-"))
		if a.yes != (x.Outcome == chain.Direct) {
			t.Errorf("%s: pod %s: the answer to %v, which is %v, is %v: %s", m.name, p.Name, a.pair, x.Outcome, a.yes, a.why)
		}
	}
	c := claimOf(t, p)
	has := m.pairOf(c)
	if x, _ := n.Pair(has.GPU, has.NIC); x.Outcome != chain.Direct {
		o.bad++
	}
	if !agreed(c) {
		t.Errorf("%s: pod %s is bound, and its claim has the answers %+v", m.name, p.Name, c.Status.Devices)
	}
	if devices, _ := m.kubelet.Devices(p.UID); len(devices) != 2 {
		t.Errorf("the runtime is told %q, want a GPU and a NIC", devices)
	}
	o.placed, o.refusals = 1, max(len(all), 1)-1
	if o.most = o.refusals; o.refusals == 0 {
		o.first++
	}
	return o
}

// someGPU returns a function that chooses a GPU for every other pod, at random; "" stands for any.
func someGPU(seed uint64, n *node.Node) func() string {
	random := rand.New(rand.NewPCG(17, seed))
	return func() string {
		if random.IntN(2) == 0 {
			return ""
		}
		return n.GPUs[random.IntN(len(n.GPUs))].ID
	}
}

// inTurn lets pods come and go on a machine. Some ask for a certain GPU.
func (w *way) inTurn(t *testing.T, seed uint64, m *machine) (o tally) {
	pods := map[int]*core.Pod{}
	choose := someGPU(seed, m.node)
	comeAndGo(seed, false, func(i, _ int) bool {
		n, _ := m.look(t.Context())
		taken := givenBeside(t, m)
		gpu := choose()
		free := slices.ContainsFunc(n.Pairs, func(p node.Pair) bool {
			return (gpu == "" || gpu == p.GPU) && isFree(&n, taken, p.GPU, p.NIC)
		})
		can := w.can(m, &n, taken, gpu)
		p := w.pod(t, m, fmt.Sprint(m.name, "-", i), gpu)
		if can {
			o.add(w.arrives(t, m, p))
			givenBeside(t, m)
			pods[i] = p
			return true
		}
		bound := false
		wait(t, "pod "+p.Name+" is answered", func() (bool, string) { // by the scheduler, or by the driver
			now := get(t, p)
			bound = now.Spec.NodeName != ""
			refused := slices.ContainsFunc(now.Status.Conditions, func(c core.PodCondition) bool {
				return c.Type == core.PodScheduled && c.Reason == "Unschedulable" && !strings.Contains(c.Message, "deallocation")
			}) || slices.ContainsFunc(w.answers.of(p), func(a answer) bool { return !a.yes })
			return bound || refused, fmt.Sprint(now.Status.Conditions)
		})
		switch {
		case bound && !free:
			t.Fatalf("%s: pod %s has %v, and nothing that was free is direct", m.name, p.Name, m.pairOf(claimOf(t, p)))
		case bound: // the scheduler has not seen yet that another GPU is free again, and has taken one that has a partner
			o.add(w.arrives(t, m, p))
			givenBeside(t, m)
			pods[i] = p
			return true
		case free:
			o.refused++
		default:
			o.full++
		}
		remove(t, p, true)
		return false
	}, func(i int) { remove(t, pods[i], false) })
	return o
}

// everywhere runs ways on all machines, and sums up. The machines are those of the cluster's nodes.
func everywhere(t *testing.T, seed uint64, machines []*machine, ways ...*way) []tally {
	t.Helper()
	var mu sync.Mutex
	sums := make([]tally, len(ways))
	t.Run("in turn", func(t *testing.T) {
		for i, m := range machines {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				for j, w := range ways {
					o := w.inTurn(t, seed+uint64(i), m)
					mu.Lock()
					sums[j].add(o)
					mu.Unlock()
					t.Logf("%-28s %-10s %v", m.name, w.namespace, o)
				}
			})
		}
	})
	for _, m := range machines {
		m.refusalsOnly(t)
		if s := m.specifications(t); len(s) > 0 {
			t.Errorf("%s: %v is left", m.name, s)
		}
	}
	return sums
}

// refusalsOnly fails the test if a driver has logged errors.
func (m *machine) refusalsOnly(t *testing.T) {
	t.Helper()
	if s := m.said(); len(s) > 0 {
		t.Errorf("%s: %q", m.name, s)
	}
}

// newSeed is printed, so that a run can be repeated.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return seed
}

// Pods with a GPU of a vendor's driver and a NIC of ours come and go. Without a constraint, our driver refuses what is not
// direct before the pod is bound; by pcieRoot, the scheduler finds only what is. The same claims by pcieRoot with NICs of
// another driver are placed beside.
func TestNICs(t *testing.T) {
	ofNICs.use(t)
	seed := newSeed(t)
	answers, roots := addWay(t, byAnswers("by-answers")), addWay(t, byRoots("by-roots"))
	addNamespace(t, "by-root", byRootAlone())
	addRootClasses(t)
	var machines []*machine
	for _, name := range besideMachines {
		machines = append(machines, addBeside(t, label(name), topology(t, name), time.Hour, false))
		addByRoot(t, label(name)+"-root", topology(t, name))
	}
	var alone outcome
	var mu sync.Mutex
	t.Run("by pcieRoot alone", func(t *testing.T) {
		for i, name := range besideMachines {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := inTurnByRoot(t, seed+uint64(i), label(name)+"-root", topology(t, name), someGPU(seed+uint64(i), topology(t, name)))
				mu.Lock()
				defer mu.Unlock()
				alone.add(o)
				t.Logf("%-28s %-10s %+v", name, "by-root", o)
			})
		}
	})
	sums := everywhere(t, seed, machines, answers, roots)
	t.Logf("by answers: %v", sums[0])
	t.Logf("by pcieRoot, NICs of this driver: %v", sums[1])
	t.Logf("by pcieRoot, NICs of another driver: %+v", alone)
	if sums[0].bad+sums[1].bad > 0 {
		t.Error("pods have pairs that are not direct")
	}
	if sums[0].placed == 0 || sums[1].placed == 0 || sums[1].refusals > 0 {
		t.Error("nothing was placed, or the driver has refused what it has published as equal")
	}
	if alone.bad == 0 || alone.refused == 0 {
		t.Errorf("by pcieRoot alone nothing is lost, %+v: the machines show nothing", alone)
	}
}

// Pods that come at once, each for another GPU, and in an order in which the first NICs are the wrong ones for all of them: the
// driver's answers let each of them have its partner.
func TestNICsAtOnce(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("at-once"))
	m := addBeside(t, "at-once", topology(t, "hgx-6.14-translating-no-acs"), time.Hour, false) // 8 pairs, one for each GPU
	var pods []*core.Pod
	for i := range m.node.GPUs {
		gpu := m.node.GPUs[len(m.node.GPUs)-1-i].ID
		pods = append(pods, w.pod(t, m, fmt.Sprint("pod-", i), gpu))
	}
	var sum tally
	for _, p := range pods {
		sum.add(w.arrives(t, m, p))
	}
	t.Log(sum)
	if sum.bad > 0 || sum.refusals == 0 || len(givenBeside(t, m)) != len(pods) {
		t.Errorf("%v, %v", sum, givenBeside(t, m))
	}
	for _, p := range pods {
		remove(t, p, false)
	}
	m.refusalsOnly(t)
}

// A claim whose GPU no NIC reaches: the pod is not bound, and the reason is in the claim's status and in the pod's events. It
// waits, and is placed when the machine is repaired.
func TestNoPartner(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("no-partner"))
	m := addBeside(t, "no-partner", topology(t, "test-bed-fabric"), time.Second, false) // 1 pair of 16 is direct
	n, _ := m.look(t.Context())
	direct := n.Direct()[0]
	i := slices.IndexFunc(n.GPUs, func(g node.GPU) bool { return g.ID != direct.GPU })
	gpu := n.GPUs[i]
	p := w.pod(t, m, "waits", gpu.ID)
	why := w.answers.refused(t, p)
	t.Log("the claim's status: ", why)
	for _, want := range []string{"NIC " + n.NIC(direct.NIC).Name + " reaches no GPU of the claim directly", gpu.PCI.String(), "is reached by no NIC"} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not in: %s", want, why)
		}
	}
	t.Log("the pod's events: ", told(t, p, why))
	if get(t, p).Spec.NodeName != "" || len(m.specifications(t)) > 0 {
		t.Error("the pod is bound")
	}
	// Another pod gets the GPU that has a partner meanwhile.
	other := w.pod(t, m, "has-it", direct.GPU)
	w.arrives(t, m, other)
	remove(t, other, false)

	m.set(t, gpu.ID, direct.NIC, chain.Direct, "")
	placed(t, p, true)
	runs(t, p, m)
	if got := m.pairOf(claimOf(t, p)); got.GPU != gpu.ID || got.NIC != direct.NIC {
		t.Errorf("it has %v", got)
	}
	if all := w.answers.of(p); len(all) < 2 || !all[len(all)-1].yes {
		t.Errorf("%+v", all)
	} else {
		t.Logf("%d refusals until then", len(all)-1)
	}
	remove(t, p, false)
	m.refusalsOnly(t)
}

// A pair that breaks after the pod was bound and before it starts: the driver refuses it to the kubelet, with the reason. The
// GPU's driver has prepared its part, or will; the pod does not start, can be deleted, and leaves nothing.
func TestNICBreaksBeforeStart(t *testing.T) {
	ofNICs.use(t)
	w := addWay(t, byAnswers("nic-early"))
	m := addBeside(t, "nic-early", topology(t, "dgx-h100"), time.Second, false)
	m.kubelet.Stop() // no pod starts
	p := w.pod(t, m, "refused", "")
	placed(t, p, true)
	has := m.pairOf(claimOf(t, p))
	m.set(t, has.GPU, has.NIC, chain.Refused, "the driver takes no dma-buf")
	m.startKubelet(t)
	var refused error
	wait(t, "the driver refuses the NIC", func() (bool, string) {
		refused = m.kubelet.Refused(p.UID)
		return refused != nil && strings.Contains(refused.Error(), "reaches no GPU of the claim directly"), fmt.Sprint(refused)
	})
	n, _ := m.look(t.Context())
	want := []string{"the driver takes no dma-buf", n.GPU(has.GPU).PCI.String(), "delete the pod"}
	for _, name := range partners.Names(&n, has.GPU) {
		want = append(want, name)
	}
	for _, s := range want {
		if !strings.Contains(refused.Error(), s) {
			t.Errorf("%q is not in: %v", s, refused)
		}
	}
	t.Log(refused)
	if s := m.specifications(t); len(s) > 0 || get(t, p).Status.Phase == core.PodRunning {
		t.Errorf("%v, %s", s, get(t, p).Status.Phase)
	}
	again := w.pod(t, m, "again", "")
	w.arrives(t, m, again)
	remove(t, p, false)
	remove(t, again, false)
	if s := m.specifications(t); len(s) > 0 {
		t.Errorf("%v is left", s)
	}
	// The new kubelet has removed the slices of both drivers, and asks while they are away.
	for _, s := range m.said() {
		away := strings.Contains(s, "does not publish its device") && strings.HasSuffix(s, "the kubelet asks again")
		if !away && !strings.Contains(s, "reaches no GPU of the claim directly") {
			t.Error(s)
		}
	}
}
