// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A path that is cut carries nothing: operations end when their retries are used up.
func TestCut(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		n.Cut(b.dev, a.dev)
		a.mem[0] = 1
		b.recv(1, 0, 8)
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0), a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(100, ibvfd.WCRetryExcErr)
		a.done(102, ibvfd.WCWRFlushErr)
		a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 8, 8, b, 0))
		a.done(104, ibvfd.WCRetryExcErr)
		same(t, "there", b.mem, make([]byte, size))
		b.nothing()
		// Other devices are still reached, and so is the device itself.
		c := newSide(t, n.Device("c", memnic.Limits{}), ibvfd.ConnectAttr{})
		d := newSide(t, must(a.dev.NewDomain())(t).(*memnic.Device), ibvfd.ConnectAttr{})
		join(t, c, d)
		c.post(rc.WriteQueue, c.op(ibvfd.OpWrite, 0, 8, d, 0))
		c.done(100, ibvfd.WCSuccess)
	})
}

// An operation succeeds if the path is mended before its retries are used up; and the time
// until it fails is what the attributes ask for.
func TestMend(t *testing.T) {
	attr := ibvfd.ConnectAttr{Timeout: 14, RetryCount: 3} // 4 attempts of 67 ms
	n := memnic.New(memnic.TimeScale(0.1))
	a, b := pairOf(t, n, attr)
	began := time.Now()
	n.Cut(a.dev, b.dev)
	a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
	a.done(100, ibvfd.WCRetryExcErr)
	if took, least := time.Since(began), 4*6711*time.Microsecond; took < least {
		t.Errorf("failed after %v, want %v", took, least)
	}

	n = memnic.New()
	a, b = pairOf(t, n, ibvfd.ConnectAttr{Timeout: 12})
	n.Cut(a.dev, b.dev)
	a.mem[0] = 9
	a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
	time.Sleep(time.Millisecond)
	a.nothing()
	n.Mend(a.dev, b.dev)
	a.done(100, ibvfd.WCSuccess)
	if b.mem[0] != 9 {
		t.Error("nothing has arrived")
	}
}

// Without a timeout an operation waits until its queue pair fails.
func TestNoTimeout(t *testing.T) {
	n := fast()
	a, b := pairOf(t, n, ibvfd.ConnectAttr{Timeout: ibvfd.Zero})
	n.Cut(a.dev, b.dev)
	a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
	time.Sleep(5 * time.Millisecond)
	a.nothing()
	if err := a.link.Fail(); err != nil {
		t.Fatal(err)
	}
	a.done(100, ibvfd.WCWRFlushErr)
}

// A sender waits for a receive as long as its attributes say.
func TestReceiverNotReady(t *testing.T) {
	t.Run("no retry", func(t *testing.T) {
		eachMode(t, func(t *testing.T, n *memnic.Network) {
			a, b := pairOf(t, n, ibvfd.ConnectAttr{RNRRetry: ibvfd.Zero})
			a.mem[0] = 1
			a.post(rc.WriteQueue, a.op(ibvfd.OpWriteImm, 0, 8, b, 0))
			a.done(101, ibvfd.WCRNRRetryExcErr)
			if b.mem[0] != 0 {
				t.Error("a WRITE without a receive has arrived")
			}
		})
	})
	t.Run("some", func(t *testing.T) {
		a, b := pairOf(t, memnic.New(), ibvfd.ConnectAttr{RNRRetry: 3, MinRNRTimer: 14})
		began := time.Now()
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(102, ibvfd.WCRNRRetryExcErr)
		if took := time.Since(began); took < 3*1280*time.Microsecond {
			t.Errorf("failed after %v, want three times 1.28 ms", took)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		a, b := pairOf(t, memnic.New(), ibvfd.ConnectAttr{MinRNRTimer: 1})
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0), a.op(ibvfd.OpSendImm, 0, 8, b, 0))
		time.Sleep(10 * time.Millisecond)
		a.nothing()
		b.recv(1, 0, 8)
		a.done(102, ibvfd.WCSuccess)
		a.nothing()
		b.recv(2, 0, 8)
		a.done(103, ibvfd.WCSuccess)
		b.done(1, ibvfd.WCSuccess)
		b.done(2, ibvfd.WCSuccess)
	})
}

// A port that is down carries nothing and gets no new links, and the device reports it.
func TestPort(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		var heard []ibvfd.Event
		b.dev.OnEvent(func(e ibvfd.Event) { heard = append(heard, e) })
		b.dev.SetPort(true)
		b.dev.SetPort(false)
		b.dev.SetPort(false)
		if b.link.Down() == nil || a.link.Down() != nil {
			t.Errorf("down: %v, %v", a.link.Down(), b.link.Down())
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
		a.done(100, ibvfd.WCRetryExcErr)
		if _, err := b.dev.Link(rc.Attr{Queue: b.cq}); !errors.Is(err, unix.ENETDOWN) || !strings.Contains(err.Error(), "port 1 is down") {
			t.Errorf("a link without an active port: %v", err)
		}
		b.dev.SetPort(true)
		a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 0, 8, b, 0))
		a.done(104, ibvfd.WCSuccess)
		if len(heard) != 2 || heard[0] != (ibvfd.Event{Type: ibvfd.EventPortErr, Port: 1}) || heard[1] != (ibvfd.Event{Type: ibvfd.EventPortActive, Port: 1}) {
			t.Errorf("heard %v", heard)
		}
	})
}

// A device that is removed gives up its links, answers nothing, and makes nothing.
func TestRemove(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		var heard []ibvfd.Event
		b.dev.OnEvent(func(e ibvfd.Event) { heard = append(heard, e) })
		b.dev.Remove()
		b.dev.Remove()
		var why *rc.EventError
		if err := <-b.broken; !errors.As(err, &why) || why.NIC != "b" || why.Event.Type != ibvfd.EventDeviceFatal || len(b.broken) > 0 {
			t.Errorf("broken by %v", err)
		}
		if len(heard) != 1 || heard[0].Type != ibvfd.EventDeviceFatal {
			t.Errorf("heard %v", heard)
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
		a.done(100, ibvfd.WCRetryExcErr)
		b.post(rc.WriteQueue, b.op(ibvfd.OpWrite, 0, 8, a, 0))
		b.nothing()
		if err := b.link.Fail(); err != nil {
			t.Error(err)
		}
		b.done(100, ibvfd.WCWRFlushErr)
		if _, err := b.dev.Queue(1, nil, nil); !errors.Is(err, unix.EIO) {
			t.Errorf("a queue: %v", err)
		}
		if _, err := b.dev.Link(rc.Attr{Queue: b.cq}); !errors.Is(err, unix.EIO) {
			t.Errorf("a link: %v", err)
		}
		m := newMemory(t, memnic.MemoryOptions{})
		var refused *ibvfd.RegError
		if _, err := b.dev.Source(m, 0, 8, 0); !errors.As(err, &refused) || refused.Cause != fault.CauseDeviceGone {
			t.Errorf("a registration: %v", err)
		}
	})
}

// A link that breaks does nothing until it fails.
func TestBreak(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		why := errors.New("broken")
		a.link.Break(why)
		if err := <-a.broken; err != why {
			t.Error(err)
		}
		a.post(rc.WriteQueue, a.op(ibvfd.OpWrite, 0, 8, b, 0))
		a.nothing()
		b.post(rc.WriteQueue, b.op(ibvfd.OpWrite, 0, 8, a, 0))
		b.done(100, ibvfd.WCRetryExcErr)
	})
}

// The faults of a single link.
func TestLinkFaults(t *testing.T) {
	n := memnic.New(memnic.Manual())
	a, b := pairOf(t, n, ibvfd.ConnectAttr{})
	a.link.Refuse(2)
	wr := a.op(ibvfd.OpWrite, 0, 8, b, 0)
	if k, err := a.link.Post(rc.WriteQueue, []ibvfd.SendWR{wr, wr, wr}); k != 1 || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("%d posted, %v", k, err)
	}
	a.done(100, ibvfd.WCSuccess)
	a.link.Slow(3)
	before := a.link.Queue().Polls()
	a.post(rc.WriteQueue, wr)
	a.done(100, ibvfd.WCSuccess)
	if polls := a.link.Queue().Polls() - before; polls != 3 {
		t.Errorf("answered at poll %d", polls)
	}
	b.link.Deafen()
	b.post(rc.WriteQueue, b.op(ibvfd.OpWrite, 0, 8, a, 0))
	b.done(100, ibvfd.WCSuccess)
	a.post(rc.WriteQueue, wr)
	a.done(100, ibvfd.WCRetryExcErr)
}

// Operations whose answers are lost are carried out once, however often they are repeated.
func TestLoseAnswers(t *testing.T) {
	eachMode(t, func(t *testing.T, n *memnic.Network) {
		a, b := pairOf(t, n, ibvfd.ConnectAttr{})
		n.LoseAnswers(b.dev, a.dev, true)
		b.recv(1, 0, 8)
		b.recv(2, 0, 8)
		a.mem[0] = 5
		a.post(rc.WriteQueue, a.op(ibvfd.OpSend, 0, 8, b, 0), a.op(ibvfd.OpSend, 0, 8, b, 0))
		a.done(102, ibvfd.WCRetryExcErr)
		a.done(102, ibvfd.WCWRFlushErr)
		b.done(1, ibvfd.WCSuccess)
		b.nothing()
		if b.mem[0] != 5 {
			t.Error("nothing has arrived")
		}
		n.LoseAnswers(b.dev, a.dev, false)
		a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 0, 8, b, 0))
		a.done(104, ibvfd.WCSuccess)
	})
	n := memnic.New()
	a, b := pairOf(t, n, ibvfd.ConnectAttr{Timeout: 10})
	n.LoseAnswers(b.dev, a.dev, true)
	add := a.op(ibvfd.OpFetchAdd, 0, 8, b, 0)
	add.CompareAdd = 1
	a.post(rc.WriteQueue, add)
	a.post(rc.ReadQueue, a.op(ibvfd.OpRead, 8, 8, b, 0))
	time.Sleep(6 * time.Millisecond)
	a.nothing()
	n.LoseAnswers(b.dev, a.dev, false)
	got := map[uint64]ibvfd.WCStatus{}
	for range 2 {
		wc := a.wc()
		got[wc.ID] = wc.Status
	}
	if got[106] != ibvfd.WCSuccess || got[104] != ibvfd.WCSuccess || b.mem[0] != 1 {
		t.Errorf("%v; added %d times", got, b.mem[0])
	}
}
