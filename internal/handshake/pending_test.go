// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection from an address.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.from }

type caller struct {
	*Caller
	life context.Context
	peer net.Conn // the caller's end
}

// gone reports whether another caller has the place.
func (c *caller) gone() bool { return c.life.Err() != nil }

// book is a test's callers.
type book struct {
	t    *testing.T
	p    *Pending
	port uint16
	ctx  context.Context
}

func newBook(t *testing.T, places int) *book {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
		time.Sleep(2 * noPatience) // watch ends
	})
	return &book{t: t, p: New(places), ctx: ctx}
}

// try lets a caller from an address in. It waits in the first phase.
func (b *book) try(from string) (*caller, error) {
	return b.queued(from, false)
}

// queued is try with the kernel's queue half full, or not.
func (b *book) queued(from string, halfFull bool) (*caller, error) {
	b.port++
	ours, theirs := net.Pipe()
	addr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), b.port))
	life, c, err := b.p.admit(b.ctx, pipe{ours, addr}, time.Hour, func() bool { return halfFull })
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() {
		_ = ours.Close()
		c.Leave()
	})
	context.AfterFunc(life, func() { // as a handshake does
		_ = ours.Close()
		c.Leave()
	})
	return &caller{Caller: c, life: life, peer: theirs}, nil
}

func (b *book) enter(from string) *caller {
	b.t.Helper()
	c, err := b.try(from)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// say has the caller send a byte, which begins a phase in which it is waited for.
func (c *caller) say(t *testing.T, ph Phase) {
	t.Helper()
	c.Advance(ph)
	go func() { _, _ = c.peer.Write([]byte{1}) }()
	var one [1]byte
	if _, err := c.Read(one[:]); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Read(one[:]) }()
	synctest.Wait()
}

// fails counts callers of an address that do not connect.
func (b *book) fails(from string, n int) {
	for range n {
		b.enter(from).Leave()
	}
}

// flood is n silent callers, one after the other, 2,000 a second where they are not kept
// waiting. How long they were is returned.
func (b *book) flood(n int, from func(i int) string) (kept time.Duration) {
	const apart = time.Second / 2000
	start := time.Now()
	for i := range n {
		if _, err := b.try(from(i)); err != nil && !errors.Is(err, ErrReplaced) {
			b.t.Fatal(err)
		}
		time.Sleep(apart)
	}
	return time.Since(start) - time.Duration(n)*apart
}

// While there are places, no caller loses one.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 8)
		var all []*caller
		for range 8 {
			all = append(all, b.enter("10.0.0.1"))
		}
		time.Sleep(firstByteLimit / 2)
		for i, c := range all {
			if c.gone() {
				t.Errorf("caller %d is gone", i)
			}
		}
	})
}

// Each phase has its limit, and who exceeds it hears which.
func TestLimits(t *testing.T) {
	for _, ph := range []Phase{FirstByte, TLS, Hello, Ready} {
		synctest.Test(t, func(t *testing.T) {
			c := newBook(t, 2).enter("10.0.0.1")
			if ph != FirstByte {
				c.say(t, TLS)
				c.Advance(ph)
			}
			time.Sleep(ph.limit() - 1)
			if c.gone() {
				t.Fatalf("%v: gone before its time", ph)
			}
			time.Sleep(2 * time.Nanosecond)
			synctest.Wait()
			if err := context.Cause(c.life); !errors.Is(err, ErrSlow) {
				t.Errorf("%v: %v", ph, err)
			}
			if err := c.Connected(); !errors.Is(err, ErrSlow) {
				t.Errorf("%v: connected: %v", ph, err)
			}
		})
	}
}

// Of one address who is least far goes first, and of those who is longest in its phase;
// not before it was waited for.
func TestWhoGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 4)
		ready, hello, old, young := b.enter("10.0.0.1"), b.enter("10.0.0.1"), b.enter("10.0.0.1"), b.enter("10.0.0.1")
		ready.say(t, TLS)
		ready.Advance(Ready)
		hello.say(t, Hello)
		old.say(t, TLS)
		time.Sleep(time.Millisecond)
		young.say(t, TLS)
		start := time.Now()
		for i, want := range []*caller{old, young, hello, ready} {
			next := b.enter("10.0.0.1")
			synctest.Wait()
			if !want.gone() {
				t.Fatalf("%d: another went", i)
			}
			if i == 0 && time.Since(start) < fullPatience-time.Millisecond {
				t.Errorf("it went after %v", time.Since(start))
			}
			next.say(t, Ready)
		}
	})
}

// A caller of an address with few places stays, also if it is silent and all others are
// further; an address with many gives way.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 16)
		few := b.enter("10.0.0.2")
		for range 15 {
			b.enter("10.0.0.1").say(t, Ready)
		}
		time.Sleep(2 * fullPatience)
		for i := range 40 {
			b.enter(fmt.Sprintf("10.0.1.%d", i%4))
			time.Sleep(noPatience)
		}
		if few.gone() {
			t.Error("the only caller of its address went")
		}
		many := prefixOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
		if n := b.p.sources[many].places; n > 16/5 {
			t.Errorf("the one with many places still has %d of them", n)
		}
	})
}

// IPv6 addresses of one /64 share, and an IPv4 address has one name.
func TestPrefix(t *testing.T) {
	for _, tt := range []struct{ a, b string }{
		{"2001:db8::1", "2001:db8::ffff:1"}, {"::ffff:10.0.0.1", "10.0.0.1"}, {"fe80::1%eth0", "fe80::2%eth1"},
	} {
		of := func(s string) netip.Prefix {
			return prefixOf(&net.TCPAddr{IP: netip.MustParseAddr(s).AsSlice(), Port: 1})
		}
		if of(tt.a) != of(tt.b) {
			t.Errorf("%s: %v, %s: %v", tt.a, of(tt.a), tt.b, of(tt.b))
		}
	}
	if prefixOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}) == prefixOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}) {
		t.Error("two IPv4 addresses share")
	}
	if got := prefixOf(&net.UnixAddr{}); got.IsValid() {
		t.Error(got)
	}
}

// While callers that make progress have all places, the next one waits; it enters when one
// of them is connected, and none of them is turned out.
func TestAcceptWaitsForProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 8)
		var all []*caller
		for range 8 {
			c := b.enter("10.0.0.1")
			c.say(t, TLS)
			all = append(all, c)
		}
		entered := make(chan struct{})
		go func() {
			defer close(entered)
			b.enter("10.0.0.1")
		}()
		time.Sleep(fullPatience / 2)
		select {
		case <-entered:
			t.Fatal("one more has entered")
		default:
		}
		if err := all[3].Connected(); err != nil {
			t.Fatal(err)
		}
		<-entered
		for i, c := range all {
			if c.gone() {
				t.Errorf("caller %d went", i)
			}
		}
		if err := all[3].Connected(); err == nil {
			t.Error("connected twice")
		}
	})
}

// While the kernel's queue is half full, callers that have sent nothing go at once for another
// address; but none of an address of which others connect, and none for a failing address.
func TestHalfFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name             string
			connects, fails  bool
			most, least      time.Duration
			whoseFirstByte   bool
			expectsNewcomers bool
		}{
			{name: "silent", most: 2 * noPatience, expectsNewcomers: true},
			{name: "spoke", whoseFirstByte: true, least: pressedPatience, most: pressedPatience + 2*noPatience, expectsNewcomers: true},
			{name: "progress", whoseFirstByte: true, connects: true, least: progressLasts - fullPatience, most: progress * fullPatience, expectsNewcomers: true},
			{name: "failing newcomer", fails: true},
		} {
			b := newBook(t, 4)
			if tt.connects {
				if err := b.enter("10.0.0.1").Connected(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.fails {
				b.fails("10.0.0.2", 20)
			}
			for range 4 {
				if c := b.enter("10.0.0.1"); tt.whoseFirstByte {
					c.say(t, TLS)
				}
			}
			start := time.Now()
			_, err := b.queued("10.0.0.2", true)
			if took := time.Since(start); (err == nil) != tt.expectsNewcomers || took < tt.least || took > tt.most {
				t.Errorf("%s: %v after %v", tt.name, err, took)
			}
		}
	})
}

// The time of the listener's own work is not the caller's delay.
func TestOwnTimeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 1)
		c := b.enter("10.0.0.1")
		go func() { _, _ = c.peer.Write([]byte{1}) }()
		var one [1]byte
		if _, err := c.Read(one[:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * fullPatience) // computes
		go b.try("10.0.0.2")
		time.Sleep(2 * noPatience)
		if c.gone() {
			t.Error("it went, and nobody had waited for it")
		}
	})
}

// Silent callers hold no place that a caller of another address needs, nor do they keep the
// listener from accepting: their address loses the patience with it, in a second.
func TestSilentAddressIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 64
		b := newBook(t, places)
		from := func(i int) string { return fmt.Sprintf("10.0.0.%d", i%16) }
		for i := range places {
			b.enter(from(i))
		}
		if kept := b.flood(20*places, from); kept > 2*fullPatience {
			t.Errorf("silent callers kept the listener for %v", kept)
		}
		// Good callers of one address, more than its share: none goes for silent ones.
		var good []*caller
		for i := range 3 * places / 4 {
			c := b.enter("10.0.1.1")
			c.say(t, TLS)
			good = append(good, c)
			_, _ = b.try(from(i))
		}
		if kept := b.flood(10*places, from); kept > 2*noPatience {
			t.Errorf("silent callers kept the listener for %v", kept)
		}
		for i, c := range good {
			if c.gone() {
				t.Errorf("good caller %d went", i)
			}
		}
		// With all places theirs, a silent caller is refused at once.
		for range places - len(good) {
			c := b.enter("10.0.1.1")
			c.say(t, TLS)
		}
		if _, err := b.try("10.0.0.1"); !errors.Is(err, ErrReplaced) {
			t.Errorf("%v", err)
		}
	})
}

// Patience comes back as callers connect, and after a while.
func TestPatienceComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, 4)
		patience := func() time.Duration {
			b.p.mu.Lock()
			defer b.p.mu.Unlock()
			return b.p.source(prefixOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}), time.Now()).patience
		}
		b.fails("10.0.0.1", 60)
		if got := patience(); got != 0 {
			t.Fatal(got)
		}
		for range 2 {
			c := b.enter("10.0.0.1")
			if err := c.Connected(); err != nil {
				t.Fatal(err)
			}
		}
		if got := patience(); got < fullPatience/2 {
			t.Error(got)
		}
		b.fails("10.0.0.1", 60)
		time.Sleep(recordLasts)
		if got := patience(); got != fullPatience {
			t.Error(got)
		}
		if b.p.doubted != 0 {
			t.Errorf("%d addresses are doubted", b.p.doubted)
		}
	})
}

// Of however many addresses, a bounded number is remembered, and the more of them fail the
// less a new one is waited for.
func TestManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 16
		b := newBook(t, places)
		// The first ones are waited for, as a caller far away is.
		if kept := b.flood(5_000, func(i int) string { return fmt.Sprintf("10.%d.%d.1", i/256, i%256) }); kept > 60*fullPatience {
			t.Errorf("5,000 silent callers of as many addresses kept the listener for %v", kept)
		}
		if n := len(b.p.sources); n > records+places+1 {
			t.Errorf("%d addresses are remembered", n)
		}
		time.Sleep(recordLasts + firstByteLimit)
		b.enter("10.0.0.1")
		if n := len(b.p.sources); n != 1 {
			t.Errorf("%d addresses are remembered", n)
		}
	})
}
