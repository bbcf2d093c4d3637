// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// EventError is why a connection ended that its NIC has given up by itself: an
// asynchronous event of its queue pairs or their completion queue, or the end of
// the device.
type EventError struct {
	NIC   string
	Event ibvfd.Event
}

// Error says what the NIC has reported.
func (e *EventError) Error() string { return fmt.Sprintf("%s reports: %v", e.NIC, e.Event) }

// watch hears of a device's asynchronous events. Those that are the end of links
// it tells them: no completion may ever do so.
type watch struct {
	nic   string
	heard func(ibvfd.Event) // nil: nobody else wants to know
	ended sync.WaitGroup

	mu    sync.Mutex
	links []*verbsLink
	gone  error // why there can be no links any more
}

func watchDevice(ctx *ibvfd.Context, heard func(ibvfd.Event)) *watch {
	w := &watch{nic: ctx.Name(), heard: heard}
	w.ended.Go(func() { w.listen(ctx.Events(context.Background())) })
	return w
}

// listen returns when the device is closed, or gone. Where events cannot be had
// at all, completions are all that there is.
func (w *watch) listen(events iter.Seq2[ibvfd.Event, error]) {
	for e, err := range events {
		if err != nil {
			if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENODEV) { // uverbs has let go of the device
				w.lose(err)
			}
			return
		}
		if w.heard != nil {
			w.heard(e)
		}
		switch e.Type {
		case ibvfd.EventQPFatal, ibvfd.EventQPRequestErr, ibvfd.EventQPAccessErr, ibvfd.EventCQErr:
			w.tell(e)
		case ibvfd.EventDeviceFatal:
			w.lose(&EventError{w.nic, e})
		}
	}
}

// tell ends the links that an event is of.
func (w *watch) tell(e ibvfd.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if e.CQ != nil && e.CQ == l.cq || e.QP != nil && slices.Contains(l.qps[:], e.QP) {
			l.broke(&EventError{w.nic, e})
		}
	}
}

// lose ends all links, and those to come.
func (w *watch) lose(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone == nil {
		w.gone = why
	}
	for _, l := range w.links {
		l.broke(why)
	}
}

// add has a link told; remove ends that.
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
