// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"os"

	"github.com/gpurdma/gpurdma/trace/internal/loader"
)

// moduleCame makes attachLater attach to a module that was loaded after the tracer. name is ""
// if it is not known. t.mu is held.
func (t *Tracer) moduleCame(name string) {
	if name == "" {
		t.came = loader.AllModules
	} else {
		t.came.Add(name)
	}
	select {
	case t.wake <- struct{}{}:
	default: // attachLater has been woken already
	}
}

// attachLater attaches to modules that are loaded later, until the tracer is closed. It is a
// goroutine of its own: the search for symbols and types takes so long that the ring would
// overflow if the reader waited.
func (t *Tracer) attachLater() {
	defer close(t.late)
	for {
		select {
		case <-t.loader.Stopped():
			return
		case <-t.wake:
			t.attachLate()
		}
	}
}

// attachLate follows modules that were loaded after the tracer.
func (t *Tracer) attachLate() {
	t.mu.Lock()
	came := t.came
	t.came = loader.Modules{}
	t.mu.Unlock()
	rdma, err := t.loader.ModuleCame(came)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rdma = rdma
	if err != nil && !errors.Is(err, os.ErrClosed) {
		t.unread = append(t.unread, err)
	}
	t.changed.Broadcast()
}
