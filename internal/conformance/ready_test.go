// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
)

// An operation that reads memory waits until it is ready; operations behind it wait, too. What
// writes to it does not wait.
func testReady(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		mine, other, theirs := k.alloc(t, p.a, 8), host(t, p.a, 8), host(t, p.b, 16)
		remote := p.export(theirs.All(), all)
		put(t, mine, []byte("not yet!"))
		put(t, other, []byte("12345678"))
		var calls atomic.Int32
		gate := make(chan struct{})
		mine.SetReady(func(ctx context.Context) error { calls.Add(1); <-gate; return nil })
		first := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote.Range(0, 8)}))(t)
		second := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: other.All(), Remote: remote.Range(8, 8)}))(t)
		select {
		case <-first.Done():
			t.Errorf("%s: written before it was ready", k.name)
		case <-second.Done():
			if len(s.nics) == 1 { // over another rail an independent write does not wait
				t.Errorf("%s: a write has overtaken one that waits", k.name)
			}
		case <-time.After(10 * time.Millisecond):
		}
		put(t, mine, []byte("ready!!!"))
		close(gate)
		for _, x := range []*gpurdma.Transfer{first, second} {
			<-x.Done()
			ok(t, x.Err())
		}
		p.settle()
		same(t, "when it is ready: "+k.name, theirs, []byte("ready!!!12345678"))
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		mine.SetReady(func(context.Context) error { return errors.New("this is not read") })
		ok(t, p.client.Read(limited(t), mine.All(), remote.Range(8, 8)))
		same(t, "read: "+k.name, mine, []byte("12345678"))
		mine.SetReady(nil)
		ok(t, p.client.Write(limited(t), remote.Range(0, 8), mine.All()))
	}
}

// An error of the function is the operation's, and that of no other.
func testReadyError(t *testing.T, s *setting) {
	p := s.pair(t)
	broken := errors.New("the kernel has crashed")
	for _, k := range s.kinds {
		mine, theirs := k.alloc(t, p.a, 8), host(t, p.b, 8)
		remote := p.export(theirs.All(), all)
		put(t, mine, []byte("12345678"))
		mine.SetReady(func(context.Context) error { return broken })
		if err := p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify([]byte("failed"))); !errors.Is(err, broken) {
			t.Errorf("%s: %v", k.name, err)
		}
		b := p.client.Batch()
		b.Write(remote.Range(0, 2), host(t, p.a, 2).All())
		b.Write(remote.Range(2, 2), mine.Range(2, 2))
		if err := b.Do(limited(t)); !errors.Is(err, broken) {
			t.Errorf("%s: a batch: %v", k.name, err)
		}
		mine.SetReady(nil)
		ok(t, p.client.Write(limited(t), remote.Range(4, 4), mine.Range(4, 4), gpurdma.Notify([]byte("good"))))
		if n := must(p.server.ReceiveNotification(limited(t)))(t); string(n) != "good" {
			t.Errorf("%s: note %q", k.name, n)
		}
		same(t, k.name, theirs, []byte("\x00\x00\x00\x005678"))
	}
	p.alive()
}

// Close withdraws operations that wait for memory, and ends the wait.
func testReadyClose(t *testing.T, s *setting) {
	for _, k := range s.kinds {
		p := s.pair(t)
		mine, theirs := k.alloc(t, p.a, 8), host(t, p.b, 8)
		remote := p.export(theirs.All(), all)
		put(t, mine, []byte("12345678"))
		open := gated(t, mine)
		x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote, Notify: true}))(t)
		start := time.Now()
		if err := p.client.Close(); err != nil {
			t.Errorf("%s: Close: %v", k.name, err)
		}
		if took := time.Since(start); took > bound/10 {
			t.Errorf("Close took %v", took)
		}
		<-x.Done()
		if !errors.Is(x.Err(), gpurdma.ErrClosed) {
			t.Errorf("%s: %v", k.name, x.Err())
		}
		open()
		if _, err := p.server.ReceiveNotification(limited(t)); !errors.Is(err, gpurdma.ErrPeerGone) {
			t.Errorf("%s: %v", k.name, err)
		}
		same(t, "withdrawn by Close: "+k.name, theirs, make([]byte, 8))
		ok(t, p.ln.Close())
	}
}
