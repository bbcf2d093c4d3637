// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/eventfile"
)

// The calls, as errors name them.
const (
	opBind     = "rdma_bind_addr"
	opResolve  = "rdma_resolve_addr"
	opRoute    = "rdma_resolve_route"
	opListen   = "rdma_listen"
	opConnect  = "rdma_connect"
	opAccept   = "rdma_accept"
	opReject   = "rdma_reject"
	opEnd      = "rdma_disconnect"
	opEvent    = "rdma_get_cm_event"
	opDestroy  = "rdma_destroy_id"
	opMigrate  = "rdma_migrate_id"
	opCreateID = "rdma_create_id"
)

// handle is an identifier with its event channel.
type handle struct {
	ch     channel
	id     identifier
	events *eventfile.File
	taken  event // last; for the goroutine that has the turn of events

	mu     sync.RWMutex // read-held while a call runs
	closed bool
}

// newHandle opens an event channel with an identifier on it.
func newHandle(m manager, addr string) (*handle, error) {
	h, err := openChannel(m)
	if err != nil {
		return nil, err
	}
	if h.id, err = h.ch.newID(); err != nil {
		h.dropChannel()
		return nil, refused(opCreateID, addr, err)
	}
	return h, nil
}

// openChannel makes a handle without identifier.
func openChannel(m manager) (*handle, error) {
	ch, err := m.channel()
	if err != nil {
		return nil, explainOpen(err)
	}
	h := &handle{ch: ch}
	h.events, err = eventfile.New(ch.fd(), func() (err error) {
		h.taken, err = ch.event()
		return err
	})
	if err != nil {
		ch.close()
		return nil, refused("poll the event channel", node, err)
	}
	return h, nil
}

// dropChannel closes a channel that has no identifier.
func (h *handle) dropChannel() {
	_ = h.events.Close()
	h.ch.close()
}

// call runs something on the identifier, which stays open while it runs.
func (h *handle) call(f func() error) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	return f()
}

// enter begins a call; leave ends it.
func (h *handle) enter() error {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return os.ErrClosed
	}
	return nil
}

func (h *handle) leave() { h.mu.RUnlock() }

// next waits for an event. If over reports true it returns at once, with no event.
// seen is called with the event before another goroutine can wait. Both may be nil.
func (h *handle) next(ctx context.Context, over func() bool, seen func(*event)) (event, error) {
	for {
		if err := h.events.Lock(ctx); err != nil {
			return event{}, err
		}
		if over != nil && over() {
			h.events.Unlock()
			return event{}, nil
		}
		err := h.events.Wait(ctx)
		ev := h.taken
		if err == nil && seen != nil {
			seen(&ev)
		}
		h.events.Unlock()
		if !errors.Is(err, eventfile.ErrInterrupted) {
			return ev, err
		}
	}
}

// close destroys the identifier and closes the channel, once.
func (h *handle) close(destroy func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.events.Interrupt()
	err := destroy()
	if err == nil {
		h.ch.close()
		h.closed = true
	}
	h.events.Resume(err == nil)
	return err
}

// resolveTime bounds a resolution whose context has no deadline: the kernel
// wants a bound.
const resolveTime = 10 * time.Second

// milliseconds is how long ctx lasts, for the kernel.
func milliseconds(ctx context.Context) int {
	left := resolveTime
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return int(max(1, min(left.Milliseconds(), math.MaxInt32)))
}
