// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/loader"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// counted is a tracer without a kernel, whose counters are these.
func counted(lost *[abi.EventTypes]uint64, missed map[string]uint64) *Tracer {
	t := &Tracer{
		cfg: Config{}.withDefaults(), join: testJoiner(10), wake: make(chan struct{}, 1),
		lostCount:   func() ([abi.EventTypes]uint64, error) { return *lost, nil },
		missedCount: func() map[string]uint64 { return maps.Clone(missed) },
	}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// A run that the kernel skipped before a record was sent makes the record's verdict Unknown,
// by whatever method the tracer returns it. If the skipped program is the one that sees the
// mapping, the record looks as if it were not mapped.
func TestSkippedRunIsUnknown(t *testing.T) {
	var c clock
	var lost [abi.EventTypes]uint64
	missed := map[string]uint64{}
	tr := counted(&lost, missed)
	unmapped := func(w *abi.Record) { w.Have &^= abi.HaveMap }
	want := func(what string, p placement.Placement, want placement.Memory) {
		t.Helper()
		if p.Memory != want {
			t.Errorf("%s: %v (%s)", what, p, p.Reason)
		}
	}
	one := func(id uint64, change ...func(*abi.Record)) placement.Placement {
		t.Helper()
		c = clock(monotonic()) // it began after whatever was lost
		tr.join.handle(made(&c, id, change...))
		tr.deliver(true)
		events := tr.Pending()
		if len(events) != 1 || events[0].Record.ID != id {
			t.Fatalf("%v", events)
		}
		return events[0].Record.Placement
	}
	want("nothing skipped", one(1, unmapped), placement.NotMapped)
	missed["mappings"]++
	p := one(2, unmapped)
	want("a mapping skipped", p, placement.Unknown)
	mustHave(t, p.Reason, "1 runs of the program for mappings")
	want("the next", one(3), placement.PeerToPeer)

	missed["mappings"]++
	tr.join.handle(made(&c, 4, unmapped)) // and not delivered yet
	for _, r := range tr.Records() {
		want(fmt.Sprintf("record %d, which lives", r.ID), r.Placement, placement.Unknown)
	}
	tr.deliver(true)
	want("delivered later", tr.Pending()[0].Record.Placement, placement.Unknown)
	lost[abi.EventMove]++
	tr.join.handle(made(&c, 5))
	for _, r := range tr.Records() {
		want(fmt.Sprintf("record %d, after a loss", r.ID), r.Placement, placement.Unknown)
	}
}

// If the counters of lost events cannot be read, it is not known whether an event was lost, and no
// verdict is given. A tracer that is closed gives those that it had.
func TestLossUnread(t *testing.T) {
	for err, want := range map[error]placement.Memory{
		nil: placement.PeerToPeer, unix.EPERM: placement.Unknown, os.ErrClosed: placement.PeerToPeer,
	} {
		var lost [abi.EventTypes]uint64
		tr := counted(&lost, map[string]uint64{})
		tr.lostCount = func() ([abi.EventTypes]uint64, error) { return lost, err }
		c := clock(monotonic())
		tr.join.handle(made(&c, 1))
		tr.deliver(true)
		p := tr.Pending()[0].Record.Placement
		if p.Memory != want {
			t.Errorf("%v: %v (%s)", err, p, p.Reason)
		}
		if want == placement.Unknown {
			mustHave(t, p.Reason, "an unknown number of events, whose counters could not be read: EPERM")
		}
	}
}

// A Flush during a round is answered by the next round, which does not wait for an event. A
// round that did not reach the end of the ring answers no Flush.
func TestAskedMeanwhile(t *testing.T) {
	var lost [abi.EventTypes]uint64
	tr := counted(&lost, map[string]uint64{})
	round := func(what string, wait, drained bool, served uint64) {
		t.Helper()
		until := tr.begin()
		if waits := time.Until(until) > 0; waits != wait {
			t.Errorf("%s: waits %v", what, waits)
		}
		if what == "asked during it" {
			tr.asked++
		}
		tr.deliver(drained)
		if tr.served != served {
			t.Errorf("%s: %d of %d served, want %d", what, tr.served, tr.asked, served)
		}
	}
	round("nobody asked", true, true, 0)
	round("asked during it", true, true, 0)
	round("not all was read", false, false, 0)
	round("all was read", false, true, 1)
	round("nobody asked again", true, true, 1)
}

// The event of a loaded module may be lost, or its program skipped. The tracer then looks at
// all modules.
func TestLostModule(t *testing.T) {
	var lost [abi.EventTypes]uint64
	missed := map[string]uint64{}
	tr := counted(&lost, missed)
	woken := func(what string, want bool, name string) {
		t.Helper()
		tr.asked++
		tr.begin()
		tr.deliver(true)
		got := false
		select {
		case <-tr.wake:
			got = true
		default:
		}
		if got != want || tr.came.Has(name) != want {
			t.Errorf("%s: woken %v, %+v", what, got, tr.came)
		}
		tr.came = loader.Modules{}
	}
	woken("nothing", false, "ib_uverbs")
	lost[abi.EventModule]++
	woken("lost", true, "ib_uverbs")
	woken("known already", false, "ib_uverbs")
	missed[loader.WhatModules]++
	woken("skipped", true, "ib_uverbs")
	tr.mu.Lock()
	tr.moduleCame("one")
	tr.moduleCame("two")
	tr.mu.Unlock()
	woken("two came", true, "two")
	for n := range 100 {
		tr.came.Add(fmt.Sprint(n))
	}
	if !tr.came.Has("any") {
		t.Errorf("modules by name: %+v", tr.came)
	}
}

// The reader does not wait until programs are attached to a module's functions. The end of the
// tracer does.
func TestReaderGoesOn(t *testing.T) {
	var c clock
	var lost [abi.EventTypes]uint64
	tr := counted(&lost, nil)
	goOn := make(chan struct{})
	tr.cfg.tests.ModuleCame = func() { <-goOn } // as if it took long
	tr.loader, tr.late = loader.New(tr.cfg.loading(), symbols.New("")), make(chan struct{})
	go tr.attachLater()
	came := &abi.Export{Event: abi.Event{Head: abi.Head{Type: abi.EventModule}}}
	set(came.Exporter[:], "some_module")
	for id := range uint64(3) {
		tr.take(came, nil)
		tr.take(made(&c, id+1), nil)
		tr.deliver(true)
	}
	if got := kindsOf(tr.Pending()); got != fmt.Sprint([]EventKind{Registered, Registered, Registered}) {
		t.Errorf("while a module is attached to: %s", got)
	}
	tr.loader.Stop()
	close(goOn)
	<-tr.late
	tr.loader.Close()
}

// AwaitRDMA returns when ib_uverbs is attached to, when the tracer is closed, and when its
// context ends.
func TestAwaitRDMA(t *testing.T) {
	tr := &Tracer{}
	tr.changed = sync.NewCond(&tr.mu)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	got := make(chan error, 1)
	go func() { got <- tr.AwaitRDMA(ctx) }()
	cancel(why)
	if err := <-got; err != why {
		t.Errorf("%v", err)
	}
	for _, end := range []struct {
		how  func()
		want error
	}{{func() { tr.rdma = true }, nil}, {func() { tr.rdma, tr.closed = false, true }, os.ErrClosed}} {
		tr.rdma, tr.closed = false, false
		go func() { got <- tr.AwaitRDMA(context.Background()) }()
		tr.mu.Lock()
		end.how()
		tr.changed.Broadcast()
		tr.mu.Unlock()
		if err := <-got; err != end.want {
			t.Errorf("%v, want %v", err, end.want)
		}
	}
}
