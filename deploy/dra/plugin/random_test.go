// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// pods are the pods of a node in a random test, and what became of them.
type pods struct {
	*bed
	t       *testing.T
	r       *rand.Rand
	running []*api.ResourceClaim
	placed  []*api.ResourceClaim // by the scheduler, and not prepared yet

	trying  atomic.Pointer[pairs.Pair] // the pair that is being tried
	claimed chan error                 // gets the result of a claim that came meanwhile

	prepared, refused, reboots, proofs, ended, failed int
}

func newPods(t *testing.T, seed uint64) *pods {
	p := &pods{t: t, r: rand.New(rand.NewPCG(5, seed)), claimed: make(chan error, 1)}
	p.bed = &bed{
		Cluster: clustertest.New(), n: machine(4, 4), dir: t.TempDir(), boot: "boot-0",
		live: &Live{Open: opener(p.prove), Published: p.tainted, Every: time.Hour, Again: time.Nanosecond},
	}
	p.restart(t)
	return p
}

// place places a pod, by what was published.
func (p *pods) place() {
	c := p.Allocate(p.t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1+p.r.IntN(2))))
	if c.Status.Allocation != nil {
		p.placed = append(p.placed, c)
	}
}

// start starts a pod that was placed, perhaps long ago.
func (p *pods) start() {
	if len(p.placed) == 0 {
		return
	}
	i := p.r.IntN(len(p.placed))
	c := p.placed[i]
	p.placed = slices.Delete(p.placed, i, i+1)
	p.begin(c, p.prepareOne(p.t, c))
}

// begin is what the kubelet does with the answer for a claim.
func (p *pods) begin(c *api.ResourceClaim, got kubeletplugin.PrepareResult) {
	p.judged(c, got)
	if got.Err != nil {
		if !strings.Contains(got.Err.Error(), "not direct any more") {
			p.t.Fatal(got.Err)
		}
		p.refused++
		p.Release(c)
		return
	}
	p.prepared++
	p.running = append(p.running, c)
	if again := p.prepareOne(p.t, c); fmt.Sprint(again) != fmt.Sprint(got) {
		p.t.Fatalf("prepared again: %v, at first %v", again, got)
	}
}

// judged fails the test if a claim was not judged by its pairs as they are now.
func (p *pods) judged(c *api.ResourceClaim, got kubeletplugin.PrepareResult) {
	direct := !slices.ContainsFunc(p.pairsOf(c), func(x pairs.Pair) bool {
		now, _ := p.n.Pair(x.GPU, x.NIC)
		return now.Outcome != chain.Direct
	})
	if (got.Err == nil) != direct {
		p.t.Fatalf("%v, direct %v: %v", clustertest.Names(c), direct, got.Err)
	}
}

// end ends a pod.
func (p *pods) end(i int) {
	c := p.running[i]
	p.unprepareOne(p.t, c)
	p.Release(c)
	p.running = slices.Delete(p.running, i, i+1)
}

// reboot starts the machine again. The kubelet prepares what its pods had, and some pods are gone.
func (p *pods) reboot() {
	p.reboots++
	p.boot = fmt.Sprint("boot-", p.reboots)
	if err := os.RemoveAll(filepath.Join(p.dir, "cdi")); err != nil {
		p.t.Fatal(err)
	}
	for i := range p.n.Pairs { // a proof is of one boot
		p.n.Pairs[i].Taken, p.n.Pairs[i].Proven, p.n.Pairs[i].ByTrial = time.Time{}, false, false
	}
	p.change()
	p.restart(p.t)
	was := p.running
	p.running = nil
	for _, i := range p.r.Perm(len(was)) {
		c := was[i]
		if p.r.IntN(3) == 0 {
			p.place() // the scheduler does not wait for the kubelet
			p.publishNow(p.t)
		}
		got := p.prepareOne(p.t, c)
		p.judged(c, got)
		if p.r.IntN(3) == 0 || got.Err != nil {
			if got.Err != nil && !strings.Contains(got.Err.Error(), "not direct any more") {
				p.t.Fatal(got.Err)
			}
			p.unprepareOne(p.t, c)
			p.Release(c)
		} else {
			p.running = append(p.running, c)
		}
	}
}

// change lets a pair break or heal.
func (p *pods) change() {
	x := &p.n.Pairs[p.r.IntN(len(p.n.Pairs))]
	x.Outcome = []chain.Outcome{chain.Direct, chain.Staged, chain.OutcomeUnknown}[p.r.IntN(3)]
	x.Why, x.ByTrial = "a port redirects", false
}

// tainted is the API server while a pair is about to be tried: the scheduler gives none of the two away.
func (p *pods) tainted(ctx context.Context, x pairs.Pair) error {
	if err := p.publish(ctx); err != nil {
		return err
	}
	for range 3 {
		before := len(p.placed)
		p.place()
		for _, c := range p.placed[before:] {
			if slices.ContainsFunc(p.pairsOf(c), x.Shares) {
				p.t.Fatalf("%v is given away while %v is tried", clustertest.Names(c), x)
			}
		}
	}
	return nil
}

// prove is a proof. A claim that was placed before the taint may come meanwhile: it ends the proof, and is
// prepared after that.
func (p *pods) prove(ctx context.Context, x pairs.Pair) (proving.Result, error) {
	p.proofs++
	for _, c := range p.running {
		if slices.ContainsFunc(p.pairsOf(c), x.Shares) {
			p.t.Fatalf("%v is tried, and a pod has %v", x, clustertest.Names(c))
		}
	}
	p.trying.Store(&x)
	defer p.trying.Store(nil)
	if i := slices.IndexFunc(p.placed, func(c *api.ResourceClaim) bool { return slices.ContainsFunc(p.pairsOf(c), x.Shares) }); i >= 0 {
		c := p.placed[i]
		p.placed = slices.Delete(p.placed, i, i+1)
		go func() {
			out, err := p.PrepareResourceClaims(context.Background(), []*api.ResourceClaim{c})
			got := out[c.UID]
			if now := p.trying.Load(); now != nil && got.Err == nil {
				err = errors.Join(err, fmt.Errorf("a claim of %v was answered while it was tried", *now))
			}
			if got.Err == nil {
				p.running = append(p.running, c)
			} else if !strings.Contains(got.Err.Error(), "not direct any more") {
				err = errors.Join(err, got.Err)
			} else {
				p.Release(c)
			}
			p.claimed <- err
		}()
		select {
		case <-ctx.Done():
			p.ended++
			return proving.Result{}, nil
		case err := <-p.claimed: // it was refused for another reason
			if err != nil {
				p.t.Error(err)
			}
		}
	}
	i := slices.IndexFunc(p.n.Pairs, func(y node.Pair) bool { return y.GPU == x.GPU && y.NIC == x.NIC })
	now := &p.n.Pairs[i]
	now.Taken, now.ByTrial, now.Proven, now.Outcome = time.Now(), false, true, chain.Direct
	if p.r.IntN(4) == 0 {
		now.ByTrial, now.Proven, now.Outcome, now.Why = true, false, chain.Staged, "the bytes were in system memory"
		p.failed++
	}
	return proving.Result{Kept: true}, nil
}

// try tries a pair, and waits for a claim that came meanwhile.
func (p *pods) try() {
	ended := p.ended
	if err := p.proveNext(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	if p.ended > ended {
		if err := <-p.claimed; err != nil {
			p.t.Fatal(err)
		}
	}
	p.publishNow(p.t)
	for _, s := range p.pool.Slices {
		for i := range s.Devices {
			if resources.Occupied(&s.Devices[i]) {
				p.t.Fatalf("%s is tainted after the proof", s.Devices[i].Name)
			}
		}
	}
}

func (p *pods) pairsOf(c *api.ResourceClaim) (list []pairs.Pair) {
	s, err := checkpoint.Read(p.State, p.Boot)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range clustertest.Names(c) {
		if s.Known[name] == nil {
			p.t.Fatalf("%s is given away, and not known", name)
		}
		list = append(list, s.Known[name]...)
	}
	return list
}

// check fails the test if a device is with two pods, or if something is left of a pod that is gone.
func (p *pods) check() {
	s, err := checkpoint.Read(p.State, p.Boot)
	if err != nil || len(s.Claims) != len(p.running) || p.left(p.t) != len(p.running) {
		p.t.Fatalf("%d pods, %d claims, %d specifications; %v", len(p.running), len(s.Claims), p.left(p.t), err)
	}
	seen := map[string]bool{}
	for _, c := range slices.Concat(p.running, p.placed) {
		for _, x := range p.pairsOf(c) {
			if seen[x.GPU] || seen[x.NIC] {
				p.t.Fatalf("a device is with two pods: %+v", s.Claims)
			}
			seen[x.GPU], seen[x.NIC] = true, true
		}
	}
	if s.Proving != nil {
		p.t.Fatalf("%v is marked", *s.Proving)
	}
}

// Pods come and go, pairs break and heal, pairs are tried and some fail, the driver and the machine are started again, at
// random. No GPU and no NIC is with two pods, or with a pod and a proof, only direct pairs are prepared, and at
// the end nothing is left.
func TestRandomPods(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := newPods(t, seed)
			for range 120 {
				switch k := p.r.IntN(14); {
				case k < 5:
					p.place()
					if p.r.IntN(2) == 0 { // the other half starts later
						p.start()
					}
				case k < 8 && len(p.running) > 0:
					p.end(p.r.IntN(len(p.running)))
				case k < 9:
					p.change()
				case k < 10:
					p.restart(t)
				case k < 11:
					p.publishNow(t)
				case k < 13:
					p.try()
				case p.r.IntN(2) == 0:
					p.reboot()
				}
				p.check()
			}
			for len(p.running) > 0 {
				p.end(0)
			}
			t.Logf("%d claims prepared, %d refused; %d reboots; %d proofs, of which %d failed and %d ended for a claim", p.prepared, p.refused, p.reboots, p.proofs, p.failed, p.ended)
			if p.left(t) > 0 || p.prepared == 0 || p.reboots == 0 || p.proofs == 0 {
				t.Errorf("%d specifications are left", p.left(t))
			}
		})
	}
}
