// SPDX-License-Identifier: Apache-2.0

package cmstream

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// errMoved says that the deadline has changed.
var errMoved = errors.New("the deadline was moved")

// deadline is a net.Conn's deadline: it can be moved while goroutines wait.
type deadline struct {
	life context.Context // ends with the deadline's owner; its cause is the error of wait

	mu   sync.Mutex
	ctx  context.Context // ends at the deadline, or when the deadline is moved
	move func()
}

func newDeadline(life context.Context) *deadline {
	d := &deadline{life: life}
	d.set(time.Time{})
	return d
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.move != nil {
		d.move()
	}
	ctx, moved := context.WithCancelCause(d.life)
	stop := func() {}
	if !t.IsZero() {
		ctx, stop = context.WithDeadlineCause(ctx, t, os.ErrDeadlineExceeded)
	}
	d.ctx, d.move = ctx, func() {
		moved(errMoved)
		stop()
	}
}

// wait runs a function that ends with its context, and runs it again each time that the
// deadline is moved.
func (d *deadline) wait(what func(context.Context) error) error {
	for {
		d.mu.Lock()
		ctx := d.ctx
		d.mu.Unlock()
		err := what(ctx)
		if err == nil || ctx.Err() == nil {
			return err
		}
		if err = context.Cause(ctx); !errors.Is(err, errMoved) {
			return err
		}
	}
}
