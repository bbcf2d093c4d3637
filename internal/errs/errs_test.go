// SPDX-License-Identifier: Apache-2.0

package errs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
)

func TestClosed(t *testing.T) {
	err := fmt.Errorf("read: %w", Closed("buffer host", io.EOF))
	for _, is := range []error{ErrClosed, net.ErrClosed, os.ErrClosed, io.EOF} {
		if !errors.Is(err, is) {
			t.Errorf("%v is not %v", err, is)
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(Closed("x"), io.EOF) {
		t.Error("it is anything")
	}
	if got, want := err.Error(), "read: already closed: buffer host"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEnded(t *testing.T) {
	cause := errors.New("a newer request")
	wrapped := fmt.Errorf("the server stops: %w", context.Canceled)
	for _, c := range []struct {
		cause error
		text  string
	}{{nil, "context canceled"}, {cause, "context canceled: a newer request"}, {wrapped, "the server stops: context canceled"}} {
		ctx, cancel := context.WithCancelCause(context.Background())
		if err := Ended(ctx); err != nil {
			t.Errorf("before: %v", err)
		}
		cancel(c.cause)
		err := Ended(ctx)
		if !errors.Is(err, context.Canceled) || c.cause != nil && !errors.Is(err, c.cause) || err.Error() != c.text {
			t.Errorf("%v: %v", c.cause, err)
		}
	}
	if Ended(context.Background()) != nil {
		t.Error("the background has ended")
	}
}
