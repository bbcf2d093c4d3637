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
	EventQPFatal          EventType = 1 // of Event.QP, as the next five
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

// Events yields the device's asynchronous events as they come, sleeping in Go's
// poller between them, until the loop is left or ctx ends: the last pair then
// has ctx's error, or os.ErrClosed if the Context was closed. Each event is
// acknowledged when it is taken, so that the loop's body may close the object
// it names. Of several loops, each event goes to one. Events that no
// loop takes stay with the kernel and harm nothing. [Context.EventChannel] is
// the same for a program that waits for something else too.
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

// EventChannel is Events as a channel, for a select. It is closed when ctx ends,
// the Context is closed or the device is gone; why then says which, and waits
// until then if it is asked earlier. An event that is not received when ctx
// ends is lost. ctx has to end for the channel's goroutine to do so while an event
// waits to be received.
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
