// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

// network returns a device's streams.
func network(t testing.TB, d *memnic.Device) rc.Network {
	t.Helper()
	var x rc.Networked = d
	if x.Network() == nil {
		t.Fatal("the device has no network")
	}
	return x.Network()
}

// streamsOf returns the ends of a stream between two devices.
func streamsOf(t testing.TB, a, b *memnic.Device) (*memstream.Stream, *memstream.Stream) {
	t.Helper()
	l := must(network(t, b).Listen("b:0"))(t)
	defer l.Close()
	c := must(network(t, a).Dial(limited(t), l.Addr().String()))(t)
	d := must(l.Accept())(t)
	t.Cleanup(func() { _, _ = c.Close(), d.Close() })
	return c.(*memstream.Stream), d.(*memstream.Stream)
}

func twoDevices(opts ...memnic.Option) (*memnic.Network, *memnic.Device, *memnic.Device) {
	n := memnic.New(append(opts, memnic.Exchanges())...)
	return n, n.Device("a", memnic.Limits{}), n.Device("b", memnic.Limits{})
}

// Addresses are any text with a port, and belong to one listener at a time.
func TestAddresses(t *testing.T) {
	n := memnic.New()
	if d := n.Device("a", memnic.Limits{}); d.Network() != nil {
		t.Error("a network without exchanges has them")
	}
	l := must(n.Listen("a place:0"))(t)
	if host, port, err := net.SplitHostPort(l.Addr().String()); host != "a place" || port == "0" || err != nil || l.Addr().Network() != "in-process" {
		t.Error(l.Addr(), err)
	}
	if _, err := n.Listen(l.Addr().String()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("twice: %v", err)
	}
	if _, err := n.Listen("no port"); err == nil {
		t.Error("there is no port")
	}
	for _, addr := range []string{"nobody:1", "a place:1"} {
		if _, err := n.DialContext(limited(t), addr); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	c := must(n.DialContext(limited(t), l.Addr().String()))(t)
	d := must(l.Accept())(t)
	if c.RemoteAddr() != l.Addr() || c.LocalAddr() != d.RemoteAddr() || d.LocalAddr() != l.Addr() {
		t.Error(c.LocalAddr(), c.RemoteAddr(), d.LocalAddr(), d.RemoteAddr())
	}
	_, _ = c.Close(), d.Close()

	left := must(n.DialContext(limited(t), l.Addr().String()))(t)
	ended := make(chan error)
	all := must(n.Listen("0.0.0.0:7"))(t)
	go func() {
		_, err := all.Accept()
		ended <- err
	}()
	if err := errors.Join(l.Close(), all.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := left.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("nobody accepted it: %v", err)
	}
	_ = left.Close()
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
	again := must(n.Listen(l.Addr().String()))(t)
	every := must(n.Listen(":9"))(t)
	for _, x := range []net.Listener{again, every} {
		defer x.Close()
	}
	_ = must(n.DialContext(limited(t), "anybody:9"))(t).Close()
}

// A dial waits while too many others are not accepted.
func TestBacklog(t *testing.T) {
	n := memnic.New()
	l := must(n.Listen("a:1"))(t)
	var dialed []net.Conn
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for {
		c, err := n.DialContext(ctx, "a:1")
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			break
		}
		dialed = append(dialed, c)
	}
	got := make(chan error)
	go func() {
		c, err := n.DialContext(limited(t), "a:1")
		if err == nil {
			_ = c.Close()
		}
		got <- err
	}()
	_ = must(l.Accept())(t).Close()
	if err := <-got; err != nil || len(dialed) < 10 {
		t.Error(err, len(dialed))
	}
	for _, c := range dialed {
		_ = c.Close()
	}
	_ = l.Close()
}

// All bytes arrive in order, through a buffer that is bounded.
func TestStream(t *testing.T) {
	_, da, db := twoDevices(memnic.StreamBuffer(100))
	a, b := streamsOf(t, da, db)
	sent := make([]byte, 100000)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	var all sync.WaitGroup
	for _, s := range []*memstream.Stream{a, b} {
		all.Go(func() {
			if k, err := s.Write(sent); k != len(sent) || err != nil {
				t.Error(k, err)
			}
			if err := s.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
	if _, err := a.Write([]byte{1}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write after CloseWrite: %v", err)
	}
}

// The end of a stream is that of TCP.
func TestStreamEnds(t *testing.T) {
	_, da, db := twoDevices()
	a, b := streamsOf(t, da, db)
	if _, err := a.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) && err != io.EOF {
		t.Errorf("a read while it is closed: %v", err)
	}
	if got, err := io.ReadAll(b); string(got) != "last" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Write([]byte{1}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to one that is closed: %v", err)
	}
	for name, err := range map[string]error{
		"Read":       second(a.Read(make([]byte, 1))),
		"Write":      second(a.Write([]byte{1})),
		"Close":      a.Close(),
		"CloseWrite": a.CloseWrite(),
		"Deadline":   a.SetDeadline(time.Now()),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Deadlines end what waits, and may be moved.
func TestStreamDeadlines(t *testing.T) {
	_, da, db := twoDevices(memnic.StreamBuffer(4))
	a, b := streamsOf(t, da, db)
	timeout := func(err error) bool {
		var n net.Error
		return errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &n) && n.Timeout()
	}
	ended := make(chan error, 2)
	go func() { ended <- second(a.Read(make([]byte, 1))) }()
	go func() { ended <- second(a.Write(make([]byte, 9))) }()
	if err := a.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !timeout(err) {
			t.Error(err)
		}
	}
	if err := a.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !timeout(err) {
		t.Error(err)
	}
	// A deadline that is taken back does not end anything.
	for _, at := range []time.Time{time.Now().Add(time.Millisecond), {}} {
		if err := a.SetDeadline(at); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(3 * time.Millisecond)
	go func() { ended <- second(a.Read(make([]byte, 1))) }()
	if _, err := b.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Streams that are cut are reset, or fall silent and fail later.
func TestCutExchanges(t *testing.T) {
	t.Run("reset", func(t *testing.T) {
		n, da, db := twoDevices()
		a, b := streamsOf(t, da, db)
		other, there := streamsOf(t, db, db)
		n.CutExchanges(memstream.Reset, da)
		for _, s := range []*memstream.Stream{a, b} {
			for _, err := range []error{second(s.Read(make([]byte, 1))), second(s.Write([]byte{1}))} {
				if !errors.Is(err, unix.ECONNRESET) {
					t.Error(err)
				}
			}
		}
		if _, err := other.Write([]byte{1}); err != nil {
			t.Error(err)
		}
		if _, err := there.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		l := must(network(t, db).Listen("b:5"))(t)
		defer l.Close()
		if _, err := network(t, da).Dial(limited(t), "b:5"); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Error(err)
		}
		n.MendExchanges()
		_ = must(network(t, da).Dial(limited(t), "b:5"))(t).Close()
	})
	// What an end writes after it has seen the reset does not arrive.
	t.Run("reset while it is read", func(t *testing.T) {
		n, da, db := twoDevices()
		for range 500 {
			a, b := streamsOf(t, da, db)
			answered := make(chan error)
			for _, s := range []*memstream.Stream{a, b} {
				go func() {
					_, _ = s.Read(make([]byte, 1))
					answered <- second(s.Write([]byte{1}))
				}()
			}
			n.CutExchanges(memstream.Reset)
			for range 2 {
				if err := <-answered; !errors.Is(err, unix.ECONNRESET) {
					t.Fatal(err)
				}
			}
			n.MendExchanges()
		}
	})
	t.Run("silence", func(t *testing.T) {
		n, da, db := twoDevices(memnic.Silence(testenv.Limit(time.Second)))
		a, b := streamsOf(t, da, db)
		n.CutExchanges(memstream.Silent, da, db)
		if _, err := a.Write([]byte{1}); err != nil {
			t.Error(err)
		}
		for _, s := range []*memstream.Stream{a, b} {
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
				t.Error(err)
			}
		}
		if _, err := a.Write([]byte{1}); !errors.Is(err, unix.ETIMEDOUT) {
			t.Error(err)
		}
	})
	t.Run("a short silence", func(t *testing.T) {
		n, da, db := twoDevices()
		a, b := streamsOf(t, da, db)
		if _, err := a.Write([]byte("before")); err != nil {
			t.Error(err)
		}
		n.CutExchanges(memstream.Silent)
		if _, err := a.Write([]byte(" and after")); err != nil {
			t.Error(err)
		}
		_ = a.Close()
		p := make([]byte, 100)
		if k, err := b.Read(p); string(p[:k]) != "before" || err != nil {
			t.Errorf("%q, %v", p[:k], err)
		}
		if err := b.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Error(err)
		}
		if _, err := b.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if err := b.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		l := must(network(t, db).Listen("b:5"))(t)
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := network(t, da).Dial(ctx, "b:5"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		n.MendExchanges()
		if got, err := io.ReadAll(b); string(got) != " and after" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_ = must(network(t, da).Dial(limited(t), "b:5"))(t).Close()
	})
}
