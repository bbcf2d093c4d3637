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
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// trier is a Prover of a function.
type trier func(context.Context, pairs.Pair) (proving.Result, error)

func (f trier) Try(ctx context.Context, x pairs.Pair) (proving.Result, error) { return f(ctx, x) }
func (trier) Close() error                                                    { return nil }

// opener is Live.Open for a function that tries pairs.
func opener(f trier) func() (Prover, error) { return func() (Prover, error) { return f, nil } }

// liveBed is a driver that tries pairs with prove. Its log is in the builder.
func liveBed(t *testing.T, gpus, nics int, prove func(context.Context, pairs.Pair) (proving.Result, error)) (*bed, *strings.Builder) {
	t.Helper()
	b := newBed(t, machine(gpus, nics))
	b.live = &Live{Every: time.Hour, Again: 24 * time.Hour, Open: opener(prove), Published: func(ctx context.Context, _ pairs.Pair) error { return b.publish(ctx) }}
	b.restart(t)
	var log strings.Builder
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	return b, &log
}

// A pair whose proof shows that it is staged gets the taint of its verdict, the reason is in the log, and a pod
// that has it is told.
func TestProofFails(t *testing.T) {
	var b *bed
	b, log := liveBed(t, 1, 1, func(context.Context, pairs.Pair) (proving.Result, error) {
		x := &b.n.Pairs[0]
		x.Outcome, x.Why, x.ByTrial, x.Taken = chain.Staged, "the bytes were in system memory", true, time.Now()
		return proving.Result{Verdict: "staged", Proof: x.Why, Kept: true}, nil
	})
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	if err := b.proveNext(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publishNow(t)
	taints := b.pool.Slices[len(b.pool.Slices)-1].Devices[0].Taints
	if len(taints) != 1 || taints[0].Key != resources.Driver+"/verdict" || taints[0].Value != "staged" || taints[0].Effect != api.DeviceTaintEffectNoSchedule {
		t.Errorf("%+v", taints)
	}
	if !strings.Contains(log.String(), `proof="the bytes were in system memory"`) {
		t.Error(log)
	}
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "not direct any more: the bytes were in system memory") {
		t.Error(got.Err)
	}
	s := &checkpoint.State{Claims: map[string]checkpoint.Claim{"u": {Devices: []checkpoint.Device{{Pairs: []pairs.Pair{{GPU: "g0", NIC: "n0"}}}}}}}
	if h := healthOf(s, b.n, time.Now()); len(h) != 1 || h[0].Health != kubeletplugin.HealthStatusUnhealthy || h[0].Message != "the bytes were in system memory" {
		t.Errorf("%+v", h)
	}
	if err := b.proveNext(t.Context()); err != nil || strings.Count(log.String(), "about to be tried") != 1 {
		t.Errorf("%v: %s", err, log) // it was tried just now
	}
}

// Without the taint in the API server no pair is tried, and none stays marked. An error of the proof is reported.
func TestNotTried(t *testing.T) {
	tries := 0
	no := errors.New("no")
	b, _ := liveBed(t, 1, 1, func(context.Context, pairs.Pair) (proving.Result, error) {
		tries++
		return proving.Result{}, no
	})
	refuses := b.Live.Published
	b.Live.Published = func(context.Context, pairs.Pair) error { return no }
	unmarked := func(err error, says string, want int) {
		t.Helper()
		s, err2 := checkpoint.Read(b.State, b.Boot)
		if !errors.Is(err, no) || !strings.Contains(err.Error(), says) || tries != want || err2 != nil || s.Proving != nil {
			t.Errorf("%v, tried %d times, %+v, %v", err, tries, s, err2)
		}
	}
	unmarked(b.proveNext(t.Context()), "the taint of GPU g0 and NIC n0 is not published", 0)
	b.Live.Published = func(ctx context.Context, _ pairs.Pair) error { // a claim comes before the taint is there
		b.stop(errClaimed)
		return context.Cause(ctx)
	}
	if err := b.proveNext(t.Context()); err != nil || tries > 0 {
		t.Errorf("%v, tried %d times", err, tries)
	}
	b.Live.Published = refuses
	unmarked(b.proveNext(t.Context()), "try GPU g0 and NIC n0", 1)
}

// While another process tries a pair, this one tries none. A claim of the pair waits for that, and no claim of
// another one does. The mark of a process that is gone is removed.
func TestOtherProcess(t *testing.T) {
	b, _ := liveBed(t, 2, 2, func(context.Context, pairs.Pair) (proving.Result, error) {
		t.Error("tried")
		return proving.Result{}, nil
	})
	lock, err := checkpoint.TryLock(b.State)
	if err != nil {
		t.Fatal(err)
	}
	mark := func() {
		if err := checkpoint.Change(b.State, b.Boot, func(s *checkpoint.State) error {
			s.Proving = &pairs.Pair{GPU: "g0", NIC: "n1"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	mark()
	if err := b.proveNext(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.restart(t) // as a new version beside it
	if s := b.pool.Slices[len(b.pool.Slices)-1]; !resources.Occupied(&s.Devices[0]) {
		t.Errorf("%+v", s.Devices[0])
	}
	claim := func(pair string) *api.ResourceClaim {
		c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
		c.Status.Allocation = &api.AllocationResult{Devices: api.DeviceAllocationResult{Results: []api.DeviceRequestAllocationResult{{Request: "r", Driver: resources.Driver, Pool: clustertest.Node, Device: pair}}}}
		return c
	}
	waits, other := claim("gpu-g0-nic-n0"), claim("gpu-g1-nic-n0")
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	out, err := b.PrepareResourceClaims(ctx, []*api.ResourceClaim{waits})
	if got := out[waits.UID].Err; err != nil || got == nil || !strings.Contains(got.Error(), "GPU g0 and NIC n1 are being tried, and that has not ended") || b.left(t) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got := b.prepareOne(t, other); got.Err != nil {
		t.Error(got.Err)
	}
	b.unprepareOne(t, other)
	lock.Unlock() // that process is gone, however it ended
	if got := b.prepareOne(t, waits); got.Err != nil {
		t.Error(got.Err)
	}
	mark()
	b.publishNow(t)
	if s, err := checkpoint.Read(b.State, b.Boot); err != nil || s.Proving != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// Run tries pairs, not before the kubelet has had time to start its pods, and ends a proof when it ends.
func TestRunProves(t *testing.T) {
	begun := make(chan pairs.Pair)
	b, _ := liveBed(t, 1, 1, func(ctx context.Context, x pairs.Pair) (proving.Result, error) {
		begun <- x
		<-ctx.Done()
		return proving.Result{}, nil
	})
	gone, end := context.WithCancel(t.Context())
	end()
	now := time.Now()
	if err := b.WatchHealthStatus(gone, nil); !errors.Is(err, context.Canceled) || b.connected.Before(now) {
		t.Errorf("%v, the kubelet has started at %v", err, b.connected)
	}
	if b.connected = now; b.settled(now) || b.settled(now.Add(time.Hour-1)) || !b.settled(now.Add(time.Hour)) {
		t.Error("it does not wait for the kubelet")
	}
	b.connected = time.Time{}
	b.Live.Every = time.Millisecond
	b.Live.Published = func(ctx context.Context, x pairs.Pair) error { // Run publishes it
		for ctx.Err() == nil {
			b.mu.Lock()
			pool := b.pool
			b.mu.Unlock()
			if s := pool.Slices[len(pool.Slices)-1]; resources.Occupied(&s.Devices[0]) {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	if x := <-begun; fmt.Sprint(x) != "{g0 n0 0}" {
		t.Error(x)
	}
	stop()
	<-done
	if s, err := checkpoint.Read(b.State, b.Boot); err != nil || s.Proving != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// The containers of a claim have the driver's hooks.
func TestHooks(t *testing.T) {
	b := newBed(t, machine(1, 1))
	b.Hooks = []*specs.Hook{{HookName: "createRuntime", Path: "/the/hook"}}
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	files, err := filepath.Glob(filepath.Join(string(b.CDI), "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), `"path": "/the/hook"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// With the file of the state lost, a pair is found by its name if it is direct and free. A set is not.
func TestStateLost(t *testing.T) {
	b := newBed(t, machine(4, 4))
	one := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	set := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(2)))
	if one.Status.Allocation == nil || set.Status.Allocation == nil {
		t.Fatal("no place")
	}
	lose := func() {
		t.Helper()
		if err := os.Remove(b.State); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	if got := b.prepareOne(t, one); got.Err != nil {
		t.Fatal(got.Err)
	}
	if got := b.prepareOne(t, set); got.Err == nil || !strings.Contains(got.Err.Error(), "no set that this node has published; delete the pod") {
		t.Error(got.Err)
	}
	twice := one.DeepCopy()
	twice.UID, twice.Name = "another", "another"
	if got := b.prepareOne(t, twice); got.Err == nil || !strings.Contains(got.Err.Error(), "is with the claim default/"+one.Name) {
		t.Error(got.Err)
	}
	lose()
	b.n.Pairs[0].Outcome, b.n.Pairs[0].Why = chain.Staged, "a port redirects"
	if got := b.prepareOne(t, one); got.Err == nil || !strings.Contains(got.Err.Error(), "not direct any more: a port redirects") {
		t.Error(got.Err)
	}
}

// A claim whose GPU has gone since it was prepared is not prepared again without it.
func TestGoneSincePrepared(t *testing.T) {
	b := newBed(t, machine(1, 1))
	c := b.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
	if got := b.prepareOne(t, c); got.Err != nil {
		t.Fatal(got.Err)
	}
	b.n = machine(0, 1)
	if got := b.prepareOne(t, c); got.Err == nil || !strings.Contains(got.Err.Error(), "one of the two is not there") {
		t.Error(got.Err)
	}
}
