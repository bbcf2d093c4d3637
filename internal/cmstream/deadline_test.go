// SPDX-License-Identifier: Apache-2.0

package cmstream

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	life, end := context.WithCancelCause(t.Context())
	d := newDeadline(life)
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	d.set(time.Unix(1, 0))
	if err := d.wait(forever); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline that has passed: %v", err)
	}
	d.set(time.Time{})
	if err := d.wait(func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Errorf("no deadline any more: %v", err)
	}
	// A wait under way follows the deadline when it is moved.
	began, ended := make(chan bool, 10), make(chan error, 1)
	go func() {
		ended <- d.wait(func(ctx context.Context) error {
			began <- true
			return forever(ctx)
		})
	}()
	<-began
	d.set(time.Now().Add(time.Hour))
	<-began
	d.set(time.Time{})
	<-began
	d.set(time.Now())
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the last one: %v", err)
	}
	d.set(time.Time{})
	broken := errors.New("broken")
	if err := d.wait(func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("another error: %v", err)
	}
	go func() { ended <- d.wait(forever) }()
	end(net.ErrClosed)
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end of life: %v", err)
	}
}
