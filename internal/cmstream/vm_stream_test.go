// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cmstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// vmAddr is the address of the testbed's NIC.
const vmAddr = "10.9.0.1:0"

// bound is far above the time that any test needs.
var bound = testenv.Limit(time.Minute)

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

func closing(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		for range 2 { // the second time must do nothing
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
}

// onNIC returns what streams need of the testbed's NIC.
func onNIC(t testing.TB, tune ibvfd.ConnectAttr, every time.Duration) *Config {
	testenv.VM(t)
	d, err := rc.Open("rxe0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		d.Ended()
	})
	return &Config{
		Device: d.(*rc.Verbs), Connect: tune, KeepAlive: every,
		Pin: func(int64, string) error { return nil }, Unpin: func(int64) {}, End: func(f func() error) error { return f() },
	}
}

// pair returns the two ends of a stream, of devices opened for each.
func pair(t testing.TB, tune ibvfd.ConnectAttr, every time.Duration) (a, b *Stream) {
	ca, cb := onNIC(t, tune, every), onNIC(t, tune, every)
	l, err := Listen(limited(t), cb, vmAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, _ := Cut(l.Addr().String())
	if a, err = Dial(limited(t), ca, to); err != nil {
		t.Fatal(err)
	}
	closing(t, a)
	done := make(chan error, 1)
	go func() { done <- a.Establish(limited(t)) }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = c.(*Stream)
	closing(t, b)
	if err := errors.Join(b.Establish(limited(t)), <-done); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// quick makes the NIC detect a dead peer soon.
var quick = ibvfd.ConnectAttr{Timeout: 14, RetryCount: 2}

// slow is for machines that are busy.
var slow = ibvfd.ConnectAttr{Timeout: 17, RetryCount: 6}

//testbed:kernel 6.12
func TestVMStream(t *testing.T) {
	a, b := pair(t, slow, time.Hour)
	// Both ways at once, in pieces of all sizes, to readers that begin late.
	const size = 40 * streamChunk
	var all sync.WaitGroup
	for i, end := range []struct{ from, to *Stream }{{a, b}, {b, a}} {
		data := make([]byte, size)
		r := rand.New(rand.NewPCG(uint64(i), 1))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		all.Go(func() {
			for rest := data; len(rest) > 0; {
				n := min(1+int(rand.Int64N(3*streamChunk)), len(rest))
				if m, err := end.from.Write(rest[:n]); m != n || err != nil {
					t.Errorf("%d of %d bytes: %v", m, n, err)
					return
				}
				rest = rest[n:]
			}
		})
		all.Go(func() {
			time.Sleep(30 * time.Millisecond)
			got := make([]byte, size)
			if _, err := io.ReadFull(end.to, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("other bytes came, or %v", err)
			}
		})
	}
	all.Wait()

	_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
	_ = a.SetReadDeadline(time.Time{})
	if _, err := b.Write([]byte("the end")); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(a); string(got) != "the end" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := b.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := a.Write(make([]byte, 1)); err == nil {
		t.Error("written to nobody")
	}
	pair(t, ibvfd.ConnectAttr{Timeout: ibvfd.Zero, RetryCount: ibvfd.Zero}, time.Hour)
}

// A silent peer is probed, and given up if it does not answer.
//
//testbed:kernel 6.12
func TestVMStreamKeepalive(t *testing.T) {
	a, b := pair(t, quick, 10*time.Millisecond)
	for end := time.Now().Add(bound); a.alive.Load() < 3 || b.alive.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d and %d signs of life", a.alive.Load(), b.alive.Load())
		}
	}
	// Simulate the loss of its machine: there is no close message.
	if err := b.qp.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, rc.ErrNotConnected) || !errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
		t.Errorf("read from a machine that is gone: %v", err)
	}
}

// A peer that posts other work requests than a stream does is cut off, and its NIC reaches no
// memory of the device's other domains by a key that it knows.
//
//testbed:kernel 6.12
func TestVMStreamRefusesOtherRequests(t *testing.T) {
	for name, c := range map[string]struct {
		wr  ibvfd.SendWR
		key bool
	}{
		"a message of nothing": {wr: ibvfd.SendWR{Op: ibvfd.OpSend}},
		"a WRITE with data":    {wr: ibvfd.SendWR{Op: ibvfd.OpWriteImm}},
		"a key":                {wr: ibvfd.SendWR{Op: ibvfd.OpWrite}, key: true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			a, b := pair(t, slow, time.Hour)
			if c.key {
				mem, err := hostmem.Alloc(8)
				if err != nil {
					t.Fatal(err)
				}
				closing(t, mem)
				r, err := b.cfg.Device.Host(mem, 0, 8, ibvfd.AccessLocalWrite|ibvfd.AccessRemoteWrite)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				c.wr.RemoteAddr, c.wr.RKey = r.Remote[0].Addr, r.Remote[0].Key
				c.wr.SGE = []ibvfd.SGE{a.sge(streamSlots*streamChunk, 8)}
			}
			c.wr.Flags = ibvfd.SendSignaled
			_ = a.SetDeadline(time.Now().Add(bound))
			_ = b.SetDeadline(time.Now().Add(bound))
			a.write.Lock()
			err := a.send(c.wr, a.write.wait)
			a.write.Unlock()
			if refused := errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}); refused != c.key {
				t.Errorf("the sender got %v", err)
			}
			_, err = io.Copy(io.Discard, b)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, wire.ErrMalformed) == c.key {
				t.Errorf("the receiver got %v", err)
			}
		})
	}
}
