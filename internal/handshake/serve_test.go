// SPDX-License-Identifier: Apache-2.0

package handshake_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bound is far above what anything here takes.
var bound = testenv.Limit(time.Minute)

// serving has a server answer a byte with a byte, over TCP on loopback, until the test ends.
func serving(t *testing.T, places int, reject func(net.Addr, error)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	s := &handshake.Server{Pending: handshake.New(places), Timeout: bound, OnReject: reject, Handshake: func(ctx context.Context, c *handshake.Caller) error {
		defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if err := c.Connected(); err != nil {
			return err
		}
		_, _ = c.Write(b[:])
		return c.Close()
	}}
	go func() {
		defer close(over)
		s.Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-over
	})
	return l.Addr().String()
}

// meet is a good caller.
func meet(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(bound))
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// Descriptors and goroutines of the server stay under the bound that the package states, however
// many callers there are. OnReject gets each caller that is not connected, once, with the reason,
// and nothing is left.
func TestServerIsBounded(t *testing.T) {
	testenv.NoGrowth(t, testenv.Descriptors)
	const places, calls = 16, 400
	var told atomic.Int32
	addr := serving(t, places, func(from net.Addr, why error) {
		if !errors.Is(why, handshake.ErrReplaced) && !errors.Is(why, handshake.ErrSlow) && !errors.Is(why, io.EOF) {
			t.Errorf("%v: %v", from, why)
		}
		told.Add(1)
	})
	goroutines, descriptors := runtime.NumGoroutine(), testenv.Descriptors(t)
	var ours []net.Conn
	for range calls {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, c)
		// A goroutine each, a second one as it is ended, and the accept loop's own.
		if n := runtime.NumGoroutine() - goroutines; n > 2*(places+handshake.Ending)+1 {
			t.Fatalf("%d goroutines for %d callers", n, len(ours))
		}
		if n := testenv.Descriptors(t) - descriptors - len(ours); n > places+handshake.Ending+1 {
			t.Fatalf("%d descriptors for %d callers", n, len(ours))
		}
	}
	meet(t, addr)
	for _, c := range ours {
		_ = c.Close()
	}
	for end := time.Now().Add(bound); told.Load() < calls; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d were told of", told.Load(), calls)
		}
	}
	meet(t, addr)
	if n := told.Load(); n != calls {
		t.Errorf("%d of %d were told of", n, calls)
	}
}

// Serve returns when ctx has ended and the listener is closed, whatever its callers do.
func TestServeEnds(t *testing.T) {
	var silent net.Conn
	t.Run("serving", func(t *testing.T) {
		addr := serving(t, 2, func(from net.Addr, why error) { t.Errorf("told of %v at the end: %v", from, why) })
		var err error
		if silent, err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		meet(t, addr) // so that the silent one is accepted
	})
	_ = silent.SetReadDeadline(time.Now().Add(bound))
	if _, err := silent.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("still connected")
	}
	_ = silent.Close()
}

// A listener that fails for a while is asked again.
func TestAcceptFails(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &failing{then: cancel}
	(&handshake.Server{Pending: handshake.New(1), Timeout: bound}).Serve(ctx, l)
	if l.n != 3 {
		t.Errorf("asked %d times", l.n)
	}
}

type failing struct {
	net.Listener
	n    int
	then func()
}

func (l *failing) Accept() (net.Conn, error) {
	if l.n++; l.n == 3 {
		l.then()
	}
	return nil, errors.New("too many open files")
}
