// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/eventfile"
)

// EventType is what an asynchronous event reports. The numbers are those of
// enum ibv_event_type.
type EventType int

// The events. What each means is in ibv_get_async_event(3).
const (
	EventCQErr            EventType = 0 // of Event.CQ: it overran, and its queue pairs are dead
	EventQPFatal          EventType = 1 // of Event.QP, as the next six
	EventQPRequestErr     EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4 // the first packet came while the queue pair was in RTR
	EventSQDrained        EventType = 5 // [QP.Drain] is done
	EventPathMigrated     EventType = 6
	EventPathMigrateErr   EventType = 7
	EventDeviceFatal      EventType = 8 // close everything: the device is gone or broken
	EventPortActive       EventType = 9 // of Event.Port, as the next four
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14 // of Event.SRQ, as the next one
	EventSRQLimit         EventType = 15 // fewer receives than the limit are left; the limit is off now
	EventQPLastWQE        EventType = 16 // of Event.QP: it takes no more receives from its SRQ
	EventClientReregister EventType = 17 // of Event.Port, as the next one
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19
)

var eventNames = [...]string{
	"CQ error", "QP fatal error", "QP request error", "QP access error", "communication established", "send queue drained",
	"path migrated", "path migration error", "device fatal error", "port active", "port error", "LID change", "P_Key change",
	"subnet manager change", "SRQ error", "SRQ limit reached", "last WQE reached", "client reregister", "GID change", "WQ fatal error",
}

// String returns the event in words: "port error".
func (t EventType) String() string { return enum.Name(eventNames[:], int(t), "EventType") }

// MarshalText makes an EventType a string in JSON.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Event is an asynchronous event of a device. Its Type says which of the other
// fields is set; an object may be closed by the time that it is looked at.
type Event struct {
	Type EventType
	Port int
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// String says what happened, and to what: "port error: port 1".
func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v: QP %d", e.Type, e.QP.num)
	case e.Port != 0:
		return fmt.Sprintf("%v: port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// Events yields the device's asynchronous events as they come, and sleeps in Go's poller between
// them. It ends when the loop is left, when ctx ends, when the Context is closed and when the
// device is gone. The last pair of the latter three has the error: ctx's, os.ErrClosed, or that of
// the device.
//
// Events acknowledges each event before it yields it, so the loop's body may close the object that
// the event names. If several loops run, each event goes to one of them. An event that no loop
// takes stays in the kernel and harms nothing. A program that waits for something else too takes
// [Context.EventChannel].
func (c *Context) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := c.nextEvent(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// EventChannel is [Context.Events] as a channel, for a select. The channel is closed when ctx ends,
// the Context is closed or the device is gone. why waits for that and returns the error.
//
// A goroutine of its own sends the events. While it waits for a receiver only the end of ctx ends
// it, so the caller must end ctx, and the event that it held then is lost.
func (c *Context) EventChannel(ctx context.Context) (events <-chan Event, why func() error) {
	list, ended := make(chan Event), make(chan struct{})
	var end error
	go func() {
		defer close(ended)
		defer close(list)
		for e, err := range c.Events(ctx) {
			if err != nil {
				end = err
				return
			}
			select {
			case list <- e:
			case <-ctx.Done():
				end = ctx.Err()
				return
			}
		}
	}()
	return list, func() error {
		<-ended
		return end
	}
}

func (c *Context) nextEvent(ctx context.Context) (Event, error) {
	f, err := c.openEvents()
	if err != nil {
		return Event{}, err
	}
	for {
		if err := f.Lock(ctx); err != nil {
			return Event{}, err
		}
		err := f.Wait(ctx)
		e := eventOf(c.async.raw, c.async.object)
		f.Unlock()
		switch {
		case err == nil:
			return e, nil
		case errors.Is(err, eventfile.ErrInterrupted):
			continue
		case ctx.Err() != nil:
			return Event{}, err
		}
		x := failed("ibv_get_async_event", c.name, err)
		x.Remedy = "close everything of this device: it is gone"
		return Event{}, x
	}
}

// openEvents opens the descriptor of events when they are first asked for.
func (c *Context) openEvents() (*eventfile.File, error) {
	if err := c.enter(); err != nil { // before mu: Close takes the two in this order
		return nil, err
	}
	defer c.leave()
	a := &c.async
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		return a.file, nil
	}
	fd, err := c.v.EventFD()
	if err == nil {
		a.file, err = eventfile.New(fd, func() error {
			return c.v.Event(func(raw libibverbs.Event) { a.raw, a.object = raw, c.objects.find(raw.Object) })
		})
	}
	if err != nil {
		return nil, failed("poll the asynchronous events", c.name, err)
	}
	return a.file, nil
}

// eventOf is what libibverbs has reported, with the object it is about.
func eventOf(raw libibverbs.Event, object any) Event {
	e := Event{Type: EventType(raw.Type), Port: raw.Port}
	switch x := object.(type) {
	case *QP:
		e.QP = x
	case *CQ:
		e.CQ = x
	case *SRQ:
		e.SRQ = x
	}
	return e
}
