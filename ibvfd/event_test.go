// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// Every type of event names its object or port and is acknowledged once.
func TestEvents(t *testing.T) {
	s := newScript()
	events := s.withEvents(t)
	pd := scripted(t, s, &kernel{reg: always(0)})
	c := pd.Context()
	srq, err := pd.CreateSRQ(SRQAttr{})
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq, SRQ: srq})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []interface{ Close() error }{srq, cq, qp} {
		t.Cleanup(func() {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	var want []Event
	for typ := EventCQErr; typ <= EventWQFatal; typ++ {
		e, raw := Event{Type: typ}, libibverbs.Event{Type: int(typ)}
		switch typ {
		case EventCQErr:
			e.CQ, raw.Object = cq, cq.v.Identity()
		case EventQPFatal, EventQPRequestErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMigrated, EventPathMigrateErr, EventQPLastWQE:
			e.QP, raw.Object = qp, qp.v.Identity()
		case EventSRQErr, EventSRQLimit:
			e.SRQ, raw.Object = srq, srq.v.Identity()
		case EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange, EventClientReregister, EventGIDChange:
			e.Port, raw.Port = 1, 1
		case EventDeviceFatal:
		case EventWQFatal:
			raw.Object = 0x77777777 // of no object of ours
		}
		if e.String() == "" || e.Type.String() != enum.Name(eventNames[:], int(typ), "") {
			t.Errorf("event %d is called %q", typ, e)
		}
		want = append(want, e)
		if err := events.put(raw); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range c.Events(t.Context()) {
		if err != nil || e != want[0] {
			t.Fatalf("%+v, %v; want %+v", e, err, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
	}
	if s.acked != int(EventWQFatal)+1 {
		t.Errorf("%d events acknowledged of %d", s.acked, EventWQFatal+1)
	}
}

// A closed object is not found by an event that is late, a new one is.
func TestEventOfClosedObject(t *testing.T) {
	var o objects
	a, b := &QP{num: 1}, &QP{num: 2}
	o.add(7, a)
	o.add(7, b) // a is destroyed, and its memory reused, before it is removed
	o.remove(7, a)
	if e := eventOf(libibverbs.Event{Type: int(EventQPFatal), Object: 7}, o.find(7)); e.QP != b {
		t.Errorf("the event names %v", e)
	}
	o.remove(7, b)
	if e := eventOf(libibverbs.Event{Type: int(EventQPFatal), Object: 7}, o.find(7)); e.QP != nil {
		t.Errorf("the event names a QP that is gone: %v", e)
	}
}

// Close may come while the first loop opens the descriptor.
func TestEventsAgainstClose(t *testing.T) {
	tree := deviceTree(t)
	for range 200 {
		s := newScript()
		s.withEvents(t)
		c, err := open(s, "roce0", tree, &kernel{reg: always(0)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		for range 2 {
			go func() {
				for _, err := range c.Events(t.Context()) {
					ended <- err
				}
			}()
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
		}
	}
}

// The loop ends with its context, with Close, and with the device.
func TestEventsEnd(t *testing.T) {
	s := newScript()
	s.withEvents(t)
	k := &kernel{reg: always(0)}
	c, err := open(s, "roce0", deviceTree(t), k)
	if err != nil {
		t.Fatal(err)
	}
	loop := func(ctx context.Context) error {
		for _, err := range c.Events(ctx) {
			return err
		}
		return nil
	}
	s.failWith("eventFD", unix.EMFILE)
	if err := loop(t.Context()); !errors.Is(err, unix.EMFILE) {
		t.Errorf("no descriptor: %v", err)
	}
	s.failWith("eventFD", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	s.failWith("event", unix.EIO)
	if err := loop(t.Context()); !errors.Is(err, unix.EIO) {
		t.Errorf("device gone: %v", err)
	}
	s.failWith("event", nil)
	s.failWith("close", unix.EBUSY)
	ended := make(chan error)
	for range 3 {
		go func() { ended <- loop(t.Context()) }()
	}
	for range 20 {
		runtime.Gosched()
		if err := c.Close(); !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	s.failWith("close", nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	if err := loop(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Events of a closed context: %v", err)
	}
	s.nothingLeft(t)
}

// A channel has the events in their order, those of objects and of the device too,
// and ends with its context, with Close, and with the device, whether it is
// received from or not.
func TestEventChannel(t *testing.T) {
	s := newScript()
	pipe := s.withEvents(t)
	pd := scripted(t, s, &kernel{reg: always(0)})
	c := pd.Context()
	cq, err := c.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPAttr{Type: RC, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	put := func(e libibverbs.Event) {
		t.Helper()
		if err := pipe.put(e); err != nil {
			t.Fatal(err)
		}
	}
	take := func() {
		t.Helper()
		for _, err := range c.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, why := c.EventChannel(ctx)
	want := []Event{
		{Type: EventPortErr, Port: 1}, {Type: EventQPFatal, QP: qp}, {Type: EventPortErr, Port: 2}, {Type: EventCQErr, CQ: cq},
		{Type: EventDeviceFatal}, {Type: EventPortActive, Port: 1}, // the device has said that it is broken, and goes on telling
	}
	for _, e := range want {
		raw := libibverbs.Event{Type: int(e.Type), Port: e.Port}
		switch {
		case e.QP != nil:
			raw.Object = qp.v.Identity()
		case e.CQ != nil:
			raw.Object = cq.v.Identity()
		}
		put(raw)
	}
	for _, want := range want {
		if e, more := <-events; e != want || !more {
			t.Errorf("%v, want %v", e, want)
		}
	}
	put(libibverbs.Event{Type: int(EventPortErr), Port: 9}) // no loop receives it
	cancel()
	if err := why(); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for range events { // it is closed
	}
	for s.acked < len(want)+1 { // the last may not have been taken
		take()
	}

	// The device goes while no loop receives, and tells nothing any more.
	events, why = c.EventChannel(t.Context())
	s.failWith("event", unix.EIO)
	put(libibverbs.Event{Type: int(EventDeviceFatal)}) // its descriptor is readable
	var e *failure.Error
	if err := why(); !errors.Is(err, unix.EIO) || !errors.As(err, &e) || e.Device != "roce0" || e.Remedy == "" {
		t.Errorf("the device is gone: %v", err)
	}
	if e, more := <-events; more {
		t.Errorf("%v of a device that is gone", e)
	}
	if err := why(); !errors.Is(err, unix.EIO) { // asked again
		t.Errorf("the device is gone: %v", err)
	}
	s.failWith("event", nil)
	take()

	events, why = c.EventChannel(t.Context())
	if err := errors.Join(qp.Close(), cq.Close(), pd.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if e, more := <-events; more {
		t.Errorf("%v of a closed context", e)
	}
	if err := why(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s.nothingLeft(t)
}
