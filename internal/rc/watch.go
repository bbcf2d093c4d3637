// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// EventError means that the NIC has given up a connection: it has reported an asynchronous event
// of its queue pairs or their completion queue, or the device has ended. The event of a port that is
// down does not say that: it ends links of connections over several NICs only.
type EventError struct {
	NIC   string
	Event ibvfd.Event
}

// Error returns what the NIC has reported.
func (e *EventError) Error() string { return fmt.Sprintf("%s reports: %v", e.NIC, e.Event) }

// watch receives a device's asynchronous events. It ends the links that an event concerns:
// there may be no completion for them.
type watch struct {
	nic   string
	heard func(ibvfd.Event) // nil if the program does not want the events
	state func(*ibvfd.QP) (ibvfd.QPState, error)
	ended sync.WaitGroup

	mu    sync.Mutex
	links []*verbsLink
	gone  error // why no more links can be made
}

func watchDevice(ctx *ibvfd.Context, heard func(ibvfd.Event)) *watch {
	w := &watch{nic: ctx.Name(), heard: heard, state: (*ibvfd.QP).State}
	w.ended.Go(func() { w.listen(ctx.Events(context.Background())) })
	return w
}

// listen returns when the device is closed or gone. If events are not available, only
// completions report errors.
func (w *watch) listen(events iter.Seq2[ibvfd.Event, error]) {
	for e, err := range events {
		if err != nil {
			if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENODEV) { // uverbs has released the device, which is removed
				w.lose(err)
			}
			return
		}
		if w.heard != nil {
			w.heard(e)
		}
		switch e.Type {
		case ibvfd.EventQPRequestErr, ibvfd.EventQPAccessErr:
			w.ended.Go(func() {
				w.answered(e.QP)
				w.tell(e)
			})
		case ibvfd.EventQPFatal, ibvfd.EventCQErr:
			w.tell(e)
		case ibvfd.EventPortErr:
			w.ended.Go(func() { w.portDown(e) })
		case ibvfd.EventDeviceFatal:
			w.lose(&EventError{w.nic, e})
		}
	}
}

// answerLooks bounds the time that a NIC has to answer a request that it has refused, as a
// number of looks a millisecond apart.
const answerLooks = 250

// answered waits until a queue pair that has refused a request is in the error state. rxe reports
// the event before it sends the NAK. If software has put the queue pair into the error state
// before, rxe sends no NAK: the peer would see only a lost connection, not which of its requests
// was refused, and why.
func (w *watch) answered(q *ibvfd.QP) {
	if q == nil { // closed meanwhile
		return
	}
	for range answerLooks {
		if s, err := w.state(q); err != nil || s == ibvfd.StateErr {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// tell ends the links that an event concerns.
func (w *watch) tell(e ibvfd.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if e.CQ != nil && e.CQ == l.cq || e.QP != nil && slices.Contains(l.qps[:], e.QP) {
			l.a.Broke(&EventError{w.nic, e})
		}
	}
}

// portDown reports a port that is down to its links. Some drivers send the event for a port that is
// active.
func (w *watch) portDown(e ibvfd.Event) {
	w.mu.Lock()
	links := slices.Clone(w.links)
	w.mu.Unlock()
	for _, l := range links {
		if l.qps[0].Local().Port == e.Port && l.Down() != nil {
			l.a.Broke(&EventError{w.nic, e})
		}
	}
}

// lose ends all links, and refuses new ones.
func (w *watch) lose(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone == nil {
		w.gone = why
	}
	for _, l := range w.links {
		l.a.Broke(why)
	}
}

// add adds a link that events may end; remove removes it.
func (w *watch) add(l *verbsLink) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone == nil {
		w.links = append(w.links, l)
	}
	return w.gone
}

func (w *watch) remove(l *verbsLink) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.links, l); i >= 0 {
		w.links = slices.Delete(w.links, i, i+1)
	}
}
