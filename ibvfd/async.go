// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"sync"

	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/internal/eventfile"
)

// asyncEvents reads a context's events. The first call that asks for events opens
// the file.
type asyncEvents struct {
	mu     sync.Mutex
	file   *eventfile.File
	raw    libibverbs.Event // the last event, and its object; only the goroutine that has locked file uses them
	object any
}

// close calls destroy, which closes the context, while no goroutine waits for events.
func (a *asyncEvents) close(destroy func() error) error {
	a.mu.Lock()
	f := a.file
	a.mu.Unlock()
	if f == nil {
		return destroy()
	}
	f.Interrupt()
	err := destroy()
	f.Resume(err == nil)
	return err
}

// objects are a context's QPs, CQs and SRQs by the identity that events give.
type objects struct {
	mu sync.Mutex
	by map[uintptr]any
}

func (o *objects) add(id uintptr, x any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[uintptr]any{}
	}
	o.by[id] = x
}

// remove forgets x, which is destroyed: a new object may have its identity by
// now.
func (o *objects) remove(id uintptr, x any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by[id] == x {
		delete(o.by, id)
	}
}

// find is the object with that identity, nil if there is none.
func (o *objects) find(id uintptr) any {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.by[id]
}
