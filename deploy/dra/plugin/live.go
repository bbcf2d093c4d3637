// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// Live is how pairs are tried.
type Live struct {
	Open func() (Prover, error)
	// Published returns when the API server has the taint on all devices with the GPU or the NIC, or with an error.
	Published func(context.Context, pairs.Pair) error
	Every     time.Duration // between two proofs, and before the first one
	Again     time.Duration // after that a pair is tried again
}

// Prover proves pairs.
type Prover interface {
	// Try tries a pair, and keeps the result where Config.Look finds it. It returns soon after the context has
	// ended, with the devices free.
	Try(context.Context, pairs.Pair) (proving.Result, error)
	Close() error
}

// Times of a proof.
const (
	publishLimit = 20 * time.Second // for the API server to have the taint
	claimLimit   = 30 * time.Second // that a claim waits for a proof to end; the kubelet waits 45 s
	endLimit     = 10 * time.Second // that the driver waits for it when it ends; Kubernetes waits 30 s
	stuckAfter   = 3 * time.Minute  // a proof that takes longer is in a system call that hangs
)

// errClaimed is why a proof ends early.
var errClaimed = errors.New("a pod needs the devices")

// tried is the error of a claim whose device is being tried.
type tried struct{ pairs.Pair }

func (e *tried) Error() string {
	return fmt.Sprintf("GPU %s and NIC %s are being tried", e.GPU, e.NIC)
}

// free refuses a claim with devices that are being tried now, or that have gone since it was prepared.
func free(n *node.Node, s *checkpoint.State, c checkpoint.Claim) error {
	for _, d := range c.Devices {
		if s.Proving != nil && d.Shares(*s.Proving) {
			return &tried{*s.Proving}
		}
		for _, x := range d.Pairs {
			if _, ok := n.Pair(x.GPU, x.NIC); !ok && (x.GPU != "" || n.NIC(x.NIC).ID == "") {
				return good(n, x)
			}
		}
	}
	return nil
}

// prepareFree is prepare, and ends a proof of the claim's devices before. The scheduler may have chosen them before
// it saw the taint, however long ago: which claims it has placed need not be known for that.
func (p *Plugin) prepareFree(ctx context.Context, n *node.Node, c *api.ResourceClaim) ([]kubeletplugin.Device, error) {
	devices, err := p.prepare(ctx, n, c)
	var busy *tried
	if !errors.As(err, &busy) {
		return devices, err
	}
	p.Log.Info("a proof ends for a claim", "gpu", busy.GPU, "nic", busy.NIC, "claim", c.Namespace+"/"+c.Name)
	if err := p.endProof(ctx); err != nil {
		return nil, fmt.Errorf("%w, and that has not ended within %v: %w; the kubelet asks again", busy, claimLimit, err)
	}
	*n = p.look(ctx) // which may be otherwise after the proof
	return p.prepare(ctx, n, c)
}

// endProof ends the proof that runs, and returns when it has ended. One of another process, which is about to be
// replaced by this one, is waited for.
func (p *Plugin) endProof(ctx context.Context) error {
	p.mu.Lock()
	if p.stop != nil {
		p.stop(errClaimed)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, claimLimit)
	defer cancel()
	lock, err := checkpoint.WaitLock(ctx, p.State)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return p.unmark()
}

// unmark says that no pair is being tried. The caller has the lock.
func (p *Plugin) unmark() error {
	return checkpoint.Change(p.State, p.Boot, func(s *checkpoint.State) error {
		s.Proving = nil
		return nil
	})
}

// occupy taints the devices of the pair that is being tried. It removes the mark of a process that has ended during its
// proof: the lock is then free.
func (p *Plugin) occupy(s *checkpoint.State, pool resourceslice.Pool) error {
	if s.Proving == nil {
		return nil
	}
	switch lock, err := checkpoint.TryLock(p.State); {
	case err == nil:
		lock.Unlock()
		s.Proving = nil
	case errors.Is(err, checkpoint.ErrLocked):
		resources.Occupy(pool, *s.Proving)
	default:
		return err
	}
	return nil
}

// startProofs starts to try pairs, and returns a function that waits for the end of the last proof, after the
// context has ended.
func (p *Plugin) startProofs(ctx context.Context) (wait func()) {
	if p.Live == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.proveAll(ctx)
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(endLimit):
			p.Log.Error("a proof does not end, and this driver ends without it", "after", endLimit)
		}
	}
}

// proveAll tries pairs, one at a time, until the context ends.
func (p *Plugin) proveAll(ctx context.Context) {
	tick := time.NewTicker(p.Live.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !p.settled(time.Now()) {
			continue
		}
		if err := p.proveNext(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("no pair is tried now", "error", err)
		}
	}
}

// settled reports that the kubelet has not started just now: then it starts its pods.
func (p *Plugin) settled(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.connected) >= p.Live.Every
}

// proveNext tries the pair whose turn it is, if there is one. What no pod may have meanwhile is marked in the file
// first, then published. A claim that comes all the same ends the proof.
func (p *Plugin) proveNext(ctx context.Context) error {
	lock, err := checkpoint.TryLock(p.State)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil // another process tries one
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if due, err := p.due(ctx); err != nil || !due {
		return err
	}
	prover, err := p.Live.Open() // before the mark: it takes long, and needs no device
	if err != nil {
		return err
	}
	defer func() {
		if err := prover.Close(); err != nil {
			p.Log.Error("end the trace of proofs", "error", err)
		}
	}()
	defer lock.Unlock() // a claim does not wait for the end of the trace
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.mu.Lock()
	p.stop = stop // before the mark: a claim that sees the mark can then end the proof
	p.mu.Unlock()
	x, ok, err := p.mark(ctx)
	defer func() {
		p.mu.Lock()
		p.stop = nil
		p.mu.Unlock()
	}()
	if err != nil || !ok {
		return err
	}
	p.Log.Info("a pair is about to be tried", "gpu", x.GPU, "nic", x.NIC)
	defer func() {
		if err := p.unmark(); err != nil {
			p.Log.Error("the pair stays marked until the next start of this driver", "gpu", x.GPU, "nic", x.NIC, "error", err)
		}
		p.Again()
	}()
	p.Again() // Run publishes it
	wait, cancel := context.WithTimeout(ctx, publishLimit)
	err = p.Live.Published(wait, x)
	cancel()
	if cause := context.Cause(ctx); cause != nil {
		p.endedEarly(x, cause)
		return nil
	}
	if err != nil {
		return fmt.Errorf("the taint of GPU %s and NIC %s is not published: %w", x.GPU, x.NIC, err)
	}
	stuck := time.AfterFunc(stuckAfter, func() {
		p.Log.Error("a proof does not end: a system call of it hangs, and its devices stay tainted", "gpu", x.GPU, "nic", x.NIC, "after", stuckAfter)
	})
	defer stuck.Stop()
	r, err := prover.Try(ctx, x)
	switch cause := context.Cause(ctx); {
	case cause != nil:
		p.endedEarly(x, cause)
		return err
	case err != nil:
		p.schedule.Tried(x, false, time.Now())
		return fmt.Errorf("try GPU %s and NIC %s: %w", x.GPU, x.NIC, err)
	}
	p.schedule.Tried(x, r.Kept, time.Now())
	p.Log.Info("a pair was tried", "gpu", x.GPU, "nic", x.NIC, "verdict", r.Verdict, "proof", r.Proof)
	return nil
}

// endedEarly gives other pairs their turn before one whose proof was ended.
func (p *Plugin) endedEarly(x pairs.Pair, cause error) {
	p.Log.Info("a proof was ended early", "gpu", x.GPU, "nic", x.NIC, "cause", cause)
	p.schedule.Ended(x, time.Now())
}

// due reports that there is a pair to try.
func (p *Plugin) due(ctx context.Context) (ok bool, err error) {
	n := p.look(ctx)
	s, err := checkpoint.Read(p.State, p.Boot)
	if err == nil {
		_, ok = p.schedule.Next(&n, s.Used, time.Now())
	}
	return ok, err
}

// mark chooses a pair that no claim has, and marks it in the file. From then on no claim of its GPU or its NIC is
// prepared.
func (p *Plugin) mark(ctx context.Context) (x pairs.Pair, ok bool, err error) {
	n := p.look(ctx)
	err = checkpoint.Change(p.State, p.Boot, func(s *checkpoint.State) error {
		if x, ok = p.schedule.Next(&n, s.Used, time.Now()); ok {
			s.Proving = &x
		}
		return nil
	})
	return x, ok && err == nil, err
}
