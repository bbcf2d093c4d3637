// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/cdi"
	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// machine is a node of some GPUs and NICs, all pairs direct, whose pairs a test changes.
func machine(gpus, nics int) *node.Node {
	n := &node.Node{}
	for i := range gpus {
		n.GPUs = append(n.GPUs, node.GPU{ID: fmt.Sprint("g", i)})
	}
	for i := range nics {
		n.NICs = append(n.NICs, node.NIC{ID: fmt.Sprint("n", i), Name: fmt.Sprint("mlx5_", i), Ports: []int{1}})
	}
	for _, g := range n.GPUs {
		for _, x := range n.NICs {
			n.Pairs = append(n.Pairs, node.Pair{GPU: g.ID, NIC: x.ID, Outcome: chain.Direct, Distance: "PIX"})
		}
	}
	return n
}

// bed is a driver on a node, in a cluster.
type bed struct {
	*clustertest.Cluster
	*Plugin
	n         *node.Node
	dir       string
	boot      string
	live      *Live
	published int
	beside    *Beside
}

func newBed(t *testing.T, n *node.Node) *bed {
	t.Helper()
	b := &bed{Cluster: clustertest.New(), n: n, dir: t.TempDir(), boot: "boot-1"}
	b.restart(t)
	return b
}

// restart starts the driver again.
func (b *bed) restart(t *testing.T) {
	t.Helper()
	var err error
	if b.Plugin, err = New(Config{
		Node: clustertest.Node, State: filepath.Join(b.dir, "state"), Boot: b.boot, Live: b.live, CDI: cdi.Dir(filepath.Join(b.dir, "cdi")), Partners: 3, Beside: b.beside, Every: time.Hour,
		Look: func(context.Context) (node.Node, error) { return *b.n, nil }, Log: slog.New(slog.DiscardHandler),
		Publish: func(_ context.Context, r resourceslice.DriverResources) error {
			b.published++
			b.Cluster.Publish(resources.Driver, r.Pools[clustertest.Node])
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	b.publishNow(t)
}

func (b *bed) publishNow(t *testing.T) {
	t.Helper()
	if err := b.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) prepareOne(t *testing.T, c *api.ResourceClaim) kubeletplugin.PrepareResult {
	t.Helper()
	out, err := b.PrepareResourceClaims(t.Context(), []*api.ResourceClaim{c})
	if err != nil || len(out) != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	return out[c.UID]
}

func (b *bed) unprepareOne(t *testing.T, c *api.ResourceClaim) {
	t.Helper()
	out, err := b.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID}})
	if err != nil || out[c.UID] != nil {
		t.Fatalf("%v, %v", out, err)
	}
}

// left returns how many specifications there are.
func (b *bed) left(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(b.dir, "cdi", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A pair that is not direct any more stays in the slice while a pod has it, with a taint: without it, its GPU
// would be given away again. The kubelet is told.
func TestTakenPairBreaks(t *testing.T) {
	b := newBed(t, machine(2, 1))
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	has := clustertest.Names(c)[0]
	b.n.Pairs[0].Outcome, b.n.Pairs[0].Why = chain.Staged, "a port redirects"
	b.n.Pairs[1].Outcome, b.n.Pairs[1].Why = chain.Staged, "a port redirects"
	b.publishNow(t)
	found := false
	for _, s := range b.pool.Slices {
		for _, d := range s.Devices {
			if d.Name == has {
				found = len(d.Taints) == 1 && d.Taints[0].Value == "staged" && d.Taints[0].Effect == api.DeviceTaintEffectNoSchedule && len(d.ConsumesCounters) == 2
			}
		}
	}
	if !found {
		t.Errorf("%s is not there with a taint: %+v", has, b.pool)
	}
	if c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1))); c.Status.Allocation != nil {
		t.Errorf("%v is given away", clustertest.Names(c))
	}
	s, err := checkpoint.Read(b.State, b.Boot)
	if err != nil {
		t.Fatal(err)
	}
	if h := healthOf(s, b.n, time.Now()); len(h) != 1 || h[0].Health != kubeletplugin.HealthStatusUnhealthy || h[0].Message != "a port redirects" {
		t.Errorf("%+v", h)
	}
}

// A claim of a device that this node has not published is refused, and leaves nothing.
func TestUnknownDevice(t *testing.T) {
	b := newBed(t, machine(1, 1))
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	c.Status.Allocation.Devices.Results[0].Device = "gpu-x-nic-y"
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "gpu-x-nic-y is not known here") {
		t.Error(got.Err)
	}
	c.Status.Allocation = nil
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "has no devices") {
		t.Error(got.Err)
	}
	if b.left(t) > 0 {
		t.Error("a specification is left")
	}
	b.unprepareOne(t, c) // which was never prepared
}

// Run publishes at once and after each change of what pods have, and not what is as it was.
func TestRun(t *testing.T) {
	b := newBed(t, machine(2, 2))
	was := b.published
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	changes := make(chan struct{}, 10)
	publish := b.Plugin.Publish
	b.Plugin.Publish = func(ctx context.Context, r resourceslice.DriverResources) error {
		defer func() { changes <- struct{}{} }()
		return publish(ctx, r)
	}
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	<-changes // a set of two is not offered any more
	stop()
	<-done
	if b.published != was+1 {
		t.Errorf("published %d times", b.published-was)
	}
}

// When the driver starts it removes what an earlier process has left for a claim that it did not finish.
func TestLeftovers(t *testing.T) {
	b := newBed(t, machine(1, 1))
	if err := b.CDI.Write("uid-gone", checkpoint.Claim{}, b.n); err != nil || b.left(t) != 1 {
		t.Fatal(err)
	}
	b.restart(t)
	if b.left(t) != 0 {
		t.Error("it is left")
	}
	if err := os.WriteFile(b.State, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(b.Config); err == nil || !strings.Contains(err.Error(), b.State) {
		t.Error(err)
	}
}

// A node without pods reports its health, too, as a list without devices. A driver that says nothing for long counts
// as one that hangs.
func TestHealthOfNothing(t *testing.T) {
	b := newBed(t, machine(1, 1))
	ctx, stop := context.WithCancel(t.Context())
	reports, done := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
	go func() { done <- b.WatchHealthStatus(ctx, reports) }()
	select {
	case r := <-reports:
		if len(r.Devices) != 0 {
			t.Errorf("%+v", r)
		}
	case <-time.After(10 * healthEvery):
		t.Error("no report")
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A request that fails because the driver ends is no error, and an error that cannot be repaired ends the driver.
func TestHandleError(t *testing.T) {
	var log strings.Builder
	var fatal error
	p := &Plugin{Config: Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Fatal: func(err error) { fatal = err }}}
	ctx, end := context.WithCancel(t.Context())
	p.HandleError(ctx, fmt.Errorf("refused: %w", kubeletplugin.ErrRecoverable), "publish")
	if fatal != nil || !strings.Contains(log.String(), "refused") {
		t.Errorf("%v, %s", fatal, log.String())
	}
	p.HandleError(ctx, errors.New("broken"), "serve")
	if fatal == nil || !strings.Contains(fatal.Error(), "broken") {
		t.Errorf("%v", fatal)
	}
	end()
	log.Reset()
	if p.HandleError(ctx, fmt.Errorf("update: %w", context.Canceled), "publish"); log.Len() > 0 {
		t.Errorf("%s", log.String())
	}
}

// A driver that starts while an older one prepares a claim leaves the claim's specification.
func TestStartsWhileAnotherPrepares(t *testing.T) {
	b := newBed(t, machine(1, 1))
	started := make(chan error, 1)
	err := checkpoint.Change(b.State, b.Boot, func(s *checkpoint.State) error { // as the older one does
		claim := checkpoint.Claim{Namespace: "default", Name: "c", Boot: b.Boot}
		if err := b.CDI.Write("uid", claim, b.n); err != nil {
			return err
		}
		go func() {
			_, err := New(b.Config)
			started <- err
		}()
		select {
		case err := <-started:
			t.Errorf("it has started without the lock: %v", err)
			started <- nil
		case <-time.After(200 * time.Millisecond):
		}
		s.Claims["uid"] = claim
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
	if k := b.left(t); k != 1 {
		t.Errorf("%d specifications, want that of the claim", k)
	}
}
