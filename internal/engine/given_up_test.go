// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A connection that its NIC gives up ends without a completion: a sleeping goroutine and the
// peer get the error, and a new connection works.
func TestLinkGivenUp(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	w.ok(w.a.Recv(mine.All(), w.ab, "receive"))
	ended := waiting(limited(t), w.a)
	asleep(w.a, 1)
	fatal := &rc.EventError{NIC: "fake0", Event: ibvfd.Event{Type: ibvfd.EventQPAccessErr, QP: new(ibvfd.QP)}}
	w.a.linkTo(w.ab).Break(fatal)
	c := <-ended
	var why *rc.EventError
	if c.n != 1 || c.err != nil || c.Context != "receive" || !errors.Is(c.Err, ErrNotConnected) || !errors.As(c.Err, &why) || why != fatal {
		t.Errorf("%+v, want the receive with %v", c, fatal)
	}
	if c.Err != nil && (!strings.Contains(c.Err.Error(), "fake0 reports: QP access error: QP 0") || !strings.HasSuffix(c.Err.Error(), "; "+operation.Remedy(fatal))) {
		t.Errorf("%v does not say what the NIC reports, and what to do", c.Err)
	}
	if err := w.a.Send(mine.All(), w.ab, nil); !errors.As(err, &why) || !errors.Is(err, ErrNotConnected) {
		t.Errorf("a send after that: %v", err)
	}
	w.lost(w.b, w.ba)
	w.connect()
	w.ok(w.b.Recv(theirs.All(), w.ba, "again"))
	w.ok(w.a.Send(mine.All(), w.ab, "again"))
	w.done(w.a, operation.Send, "again")
	w.done(w.b, operation.Recv, "again")
}

// It also ends if no goroutine takes completions.
func TestLinkGivenUpUnwatched(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	ended := make(chan error)
	go func() {
		_, err := w.a.Offered(limited(t), w.ab)
		ended <- err
	}()
	fatal := &rc.EventError{NIC: "fake0", Event: ibvfd.Event{Type: ibvfd.EventDeviceFatal}}
	w.a.linkTo(w.ab).Break(fatal)
	var why *rc.EventError
	if err := <-ended; !errors.As(err, &why) || !errors.Is(err, ErrNotConnected) {
		t.Errorf("waiting for an offer ended with %v", err)
	}
	w.lost(w.b, w.ba)
}
