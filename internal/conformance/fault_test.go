// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// impatient is a configuration with which a silent peer is given up soon.
var impatient = gpurdma.Config{PeerTimeout: testenv.Limit(500 * time.Millisecond)}

func faulty(t testing.TB) (*setting, *pair) {
	s := inMemory(t, fabrictest.Options{})
	return s, s.pairWith(t, impatient, impatient)
}

// open returns a machine whose Close may say that outcomes are unknown.
func (s *setting) careless(t testing.TB) *gpurdma.Fabric {
	f := must(s.open(s.nics...))(t)
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, gpurdma.ErrOutcomeUnknown) {
			t.Errorf("close %v: %v", f, err)
		}
	})
	return f
}

func (s *setting) carelessPair(t testing.TB, cfg gpurdma.Config) *pair {
	p := &pair{t: t, a: s.careless(t), b: s.careless(t)}
	p.ln = must(p.b.Listen(s.listen, cfg))(t)
	p.client, p.server = p.connect(cfg)
	return p
}

// Close of a connection whose peer is cut off, with writes under way, says that their outcome
// is unknown, in bounded time. Nothing lands after it.
func TestCloseOfCutConnection(t *testing.T) {
	for _, exchange := range []string{"goes on", "silent", "reset"} {
		t.Run(exchange, func(t *testing.T) {
			s := inMemory(t, fabrictest.Options{})
			p := s.carelessPair(t, impatient)
			mine, theirs, remote := p.both(8)
			put(t, mine, []byte("12345678"))
			s.net.Cut(p.a, p.b)
			x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
			switch exchange {
			case "silent":
				s.net.CutExchanges(fabrictest.Silent, p.b)
			case "reset":
				s.net.CutExchanges(fabrictest.Reset, p.b)
			}
			start := time.Now()
			closed := p.client.Close()
			if took := time.Since(start); took > testenv.Limit(10*time.Second) {
				t.Errorf("Close took %v", took)
			}
			if <-x.Done(); x.Err() == nil {
				t.Error("a write over a path that is cut has succeeded")
			}
			// The peer confirms the end if the exchange goes on.
			if known := closed == nil; known != (exchange == "goes on") || !known && !errors.Is(closed, gpurdma.ErrOutcomeUnknown) {
				t.Errorf("Close: %v", closed)
			}
			if again := p.client.Close(); again != closed {
				t.Errorf("Close again: %v", again)
			}
			gone(t, p.server)
			s.net.Mend(p.a, p.b)
			s.net.MendExchanges()
			time.Sleep(10 * time.Millisecond)
			same(t, "after Close", theirs, make([]byte, 8))
		})
	}
}

// A write whose answer is lost has landed, and its sender does not know it.
func TestLostAnswers(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, impatient)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	s.net.CutExchanges(fabrictest.Silent, p.b)
	s.net.NIC(p.b, "").LoseAnswers(s.net.NIC(p.a, ""), true)
	if err := p.client.Write(limited(t), remote, mine.All()); !errors.Is(err, gpurdma.ErrPeerGone) && !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("%v", err)
	}
	same(t, "landed", theirs, []byte("12345678"))
	if err := p.client.Close(); !errors.Is(err, gpurdma.ErrOutcomeUnknown) {
		t.Errorf("Close: %v", err)
	}
}

// A transfer that the NIC has is done by Cancel, and its memory is released when the NIC has
// ended it.
func TestReleased(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	s.net.Cut(p.a, p.b)
	x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	if x.Cancel() {
		t.Error("the NIC had it, and it was withdrawn")
	}
	<-x.Done()
	select {
	case <-x.Released():
		t.Error("it was released while the NIC could still send it")
	case <-time.After(10 * time.Millisecond):
	}
	s.net.Mend(p.a, p.b)
	<-x.Released()
	same(t, "what the NIC had", theirs, []byte("12345678"))
	if err := x.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("its error has changed: %v", err)
	}
	if n := p.client.Stats(); n.Done != 1 || n.Failed != 0 || n.Bytes != 8 {
		t.Errorf("counted as %+v", n)
	}
	x = must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
	<-x.Released()
	<-x.Done()
	ok(t, x.Err())
}

// A path that is mended in time loses nothing.
func TestShortOutage(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	cfg := gpurdma.Config{PeerTimeout: testenv.Limit(5 * time.Second)}
	p := s.pairWith(t, cfg, cfg)
	for what, x := range map[string][2]func(){
		"a cut":  {func() { s.net.Cut(p.a, p.b) }, func() { s.net.Mend(p.a, p.b) }},
		"a port": {func() { s.net.NIC(p.a, "").SetPort(false) }, func() { s.net.NIC(p.a, "").SetPort(true) }},
		"TCP":    {func() { s.net.CutExchanges(fabrictest.Silent) }, s.net.MendExchanges},
	} {
		mine, theirs := host(t, p.a, 8), host(t, p.b, 8)
		remote := p.export(theirs.All(), all)
		put(t, mine, []byte("12345678"))
		x[0]()
		w := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
		time.Sleep(30 * time.Millisecond)
		x[1]()
		<-w.Done()
		ok(t, w.Err())
		same(t, what, theirs, []byte("12345678"))
		p.alive()
	}
}

// A machine that is lost is given up by its peers, whether they do something or wait, and
// another one stays.
func TestMachineLost(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, impatient)
	other := s.fabric(t)
	c := must(other.Dial(limited(t), p.ln.Addr().String(), impatient))(t)
	oc := must(p.ln.Accept(limited(t)))(t)
	mine, _, remote := p.both(8)
	got := make(chan error, 2)
	go func() {
		_, err := p.server.Receive(limited(t))
		got <- err
	}()
	s.net.Lose(p.a)
	start := time.Now()
	_ = p.client.Write(limited(t), remote, mine.All())
	if err := <-got; !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("a Receive of a peer that is lost: %v", err)
	}
	if err := gone(t, p.server); !errors.Is(err, gpurdma.ErrPeerGone) || errors.Is(err, gpurdma.ErrPeerClosed) {
		t.Errorf("the server: %v", err)
	}
	if err := gone(t, p.client); !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("the client: %v", err)
	}
	if took := time.Since(start); took > testenv.Limit(5*time.Second) {
		t.Errorf("it took %v", took)
	}
	p.say(c, oc)
	ok(t, c.Close())
}

// A NIC that goes away ends its connections, and frees all.
func TestNICRemoved(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, gpurdma.Config{})
	mine, _, remote := p.both(8)
	s.net.NIC(p.a, "mem0").Remove()
	if err := p.client.Write(limited(t), remote, mine.All()); err == nil {
		t.Error("a write of a NIC that is gone")
	}
	gone(t, p.client)
	if err := gone(t, p.server); !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("the server: %v", err)
	}
	ok(t, p.client.Close())
	if _, err := p.a.Alloc(limited(t), "host", 8); err == nil {
		t.Error("memory was registered with a NIC that is gone")
	}
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{}); err == nil {
		t.Error("a NIC that is gone has connected")
	}
}

// Memory that is revoked fails its operations, on the side that has it and on the other one.
func TestRevoked(t *testing.T) {
	for _, side := range []string{"peer's", "own"} {
		t.Run(side, func(t *testing.T) {
			s := inMemory(t, fabrictest.Options{})
			p := s.carelessPair(t, gpurdma.Config{})
			mine, theirs := kind{name: "direct", spec: "cuda:0"}.alloc(t, p.a, 8), kind{name: "direct", spec: "cuda:0"}.alloc(t, p.b, 8)
			remote := p.export(theirs.All(), all)
			f, status := p.b, ibvfd.WCRemAccessErr
			if side == "own" {
				f, status = p.a, ibvfd.WCLocProtErr
			}
			memory := s.net.Allocated(f)
			if len(memory) != 1 {
				t.Fatalf("%d pieces of memory", len(memory))
			}
			s.net.Revoke(memory[0])
			if err := p.client.Write(limited(t), remote, mine.All()); !errors.Is(err, &ibvfd.WCError{Status: status}) {
				t.Errorf("%v", err)
			}
			gone(t, p.client)
			gone(t, p.server)
			ok(t, p.client.Close())
			ok(t, mine.Close())
			ok(t, theirs.Close())
			if n := len(s.net.Allocated(f)); n != 0 {
				t.Errorf("%d pieces of memory are left", n)
			}
		})
	}
}

// Bytes that are held back come with the notification, and in no case later; another order is
// seen by a program that polls.
func TestPlacement(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	put(t, mine, []byte("12345678"))
	var seen atomic.Int32
	s.net.OnPlace(func(x fabrictest.Placement) time.Duration {
		seen.Add(1)
		if x.From != s.net.NIC(p.a, "") || x.To.Fabric() != p.b || x.Size != 4 || !x.Relaxed {
			t.Errorf("%+v", x)
		}
		return fabrictest.Held
	})
	ok(t, p.client.Write(limited(t), remote.Range(0, 4), mine.Range(0, 4)))
	ok(t, p.client.Write(limited(t), remote.Range(4, 4), mine.Range(4, 4)))
	same(t, "held", theirs, make([]byte, 8))
	w := s.net.Waiting()
	if len(w) != 2 || seen.Load() != 2 {
		t.Fatalf("%+v", w)
	}
	if !s.net.Place(w[1].ID, 2, 2) || s.net.Place(w[1].ID, 3, 2) || s.net.Place(0, 0, 0) {
		t.Error("Place")
	}
	same(t, "a part of the second", theirs, []byte("\x00\x00\x00\x00\x00\x0078"))
	s.net.PlaceAll()
	same(t, "all", theirs, []byte("12345678"))
	s.net.OnPlace(nil)
}

// Atomics of two NICs are not atomic among one another: a connection over another NIC gets none. A change
// by the CPU is not atomic with them, either.
func TestAtomicsOfTwoNICs(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	s.nics = []string{"mem0", "mem1"}
	a, b := s.fabric(t), s.fabric(t)
	p := &pair{t: t, a: a, b: b, ln: must(b.Listen(s.listen, gpurdma.Config{}))(t)}
	p.client, p.server = p.connect(gpurdma.Config{})
	ln2 := must(b.Listen("127.0.0.1:7472", gpurdma.Config{NIC: "mem1"}))(t)
	c2 := must(a.Dial(limited(t), "127.0.0.1:7472", gpurdma.Config{NIC: "mem1"}))(t)
	s2 := must(ln2.Accept(limited(t)))(t)
	word8 := host(t, b, 8)
	r1 := p.export(word8.All(), all)
	if err := s2.Export("second", word8.All(), all); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("atomics by another NIC: %v", err)
	}
	r2 := p.exportTo(s2, c2, word8.All(), gpurdma.ReadWrite)
	var once atomic.Bool
	s.net.OnAtomic(func(x fabrictest.AtomicOp) {
		if x.At == s.net.NIC(b, "mem0") && once.CompareAndSwap(false, true) {
			must(word8.WriteAt(binary.NativeEndian.AppendUint64(nil, 7), 0))(t)
			same(t, "by another NIC", word8, binary.NativeEndian.AppendUint64(nil, 7))
		}
	})
	must(p.client.FetchAdd(limited(t), r1, 1))(t)
	s.net.OnAtomic(nil)
	if got := word(t, word8, 0); got != 1 {
		t.Errorf("%d: the CPU's change must be lost", got)
	}
	back := host(t, a, 8)
	ok(t, c2.Read(limited(t), back.All(), r2))
	same(t, "by another NIC", back, binary.NativeEndian.AppendUint64(nil, 1))
}

// Buffers are registered with all NICs of a fabric, and a connection uses its own.
func TestTwoNICs(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	s.nics = []string{"mem0", "mem1"}
	a, b := s.fabric(t), s.fabric(t)
	r := testenv.Seeded(t)
	for i, nic := range s.nics {
		for _, k := range s.kinds {
			cfg := gpurdma.Config{NIC: nic}
			ln := must(b.Listen(fmt.Sprintf("127.0.0.1:%d", 8000+i), cfg))(t)
			p := &pair{t: t, a: a, b: b, ln: ln}
			p.client, p.server = p.connect(cfg)
			mine, theirs := k.alloc(t, a, 5000), k.alloc(t, b, 5000)
			remote := p.export(theirs.All(), all)
			want := fill(t, r, mine)
			ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Notify(nil)))
			must(p.server.ReceiveNotification(limited(t)))(t)
			beyond := make([]byte, 6000)
			if n, err := theirs.ReadAt(beyond, 0); n != 5000 || err != io.EOF || !bytes.Equal(beyond[:n], want) {
				t.Errorf("%s by %s: read beyond the end: %d, %v", k.name, nic, n, err)
			}
			same(t, k.name+" by "+nic, theirs, want)
			want = fill(t, r, theirs)
			ok(t, p.client.Read(limited(t), mine.All(), remote))
			same(t, k.name+" read by "+nic, mine, want)
			if l := p.client.Rails(); l[0].NIC != nic {
				t.Errorf("%+v", l)
			}
			// The other NIC fails, and this connection does not.
			other := s.nics[1-i]
			s.net.NIC(a, other).Cut(s.net.NIC(b, other))
			p.alive()
			s.net.NIC(a, other).Mend(s.net.NIC(b, other))
			ok(t, p.client.Close())
			ok(t, ln.Close())
		}
	}
}

// Bytes that came by one NIC are sent on by another.
func TestSentOnByAnotherNIC(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	s.nics = []string{"mem0", "mem1"}
	for _, k := range s.kinds {
		a, b := s.fabric(t), s.fabric(t)
		first, last, between := k.alloc(t, a, 100), k.alloc(t, a, 100), k.alloc(t, b, 100)
		var conns [2]*pair
		var remotes [2]gpurdma.Remote
		for i, nic := range s.nics {
			cfg := gpurdma.Config{NIC: nic}
			conns[i] = &pair{t: t, a: a, b: b, ln: must(b.Listen(fmt.Sprintf("127.0.0.1:%d", 8000+i), cfg))(t)}
			conns[i].client, conns[i].server = conns[i].connect(cfg)
			remotes[i] = conns[i].export(between.All(), gpurdma.ReadWrite)
		}
		want := fill(t, testenv.Seeded(t), first)
		ok(t, conns[0].client.Write(limited(t), remotes[0], first.All(), gpurdma.Notify(nil)))
		must(conns[0].server.ReceiveNotification(limited(t)))(t)
		ok(t, conns[1].client.Export("last", last.All(), all))
		to := must(conns[1].server.Import(limited(t), "last"))(t)
		ok(t, conns[1].server.Write(limited(t), to, between.All(), gpurdma.Notify(nil)))
		must(conns[1].client.ReceiveNotification(limited(t)))(t)
		same(t, k.name+": sent on", last, want)
		for _, p := range conns {
			ok(t, p.ln.Close())
		}
	}
}

// A slow receiver that dies ends its sender.
func TestSenderOfLostReceiver(t *testing.T) {
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, gpurdma.Config{Messages: 1, PeerTimeout: impatient.PeerTimeout})
	ok(t, p.client.Send(limited(t), nil))
	blocked := make(chan error)
	go func() { blocked <- p.client.Send(limited(t), nil) }()
	time.Sleep(10 * time.Millisecond)
	s.net.Lose(p.b)
	if err := <-blocked; !errors.Is(err, gpurdma.ErrPeerGone) {
		t.Errorf("%v", err)
	}
}

// A Dial of a machine that is lost ends with its context or its time.
func TestDialOfLostMachine(t *testing.T) {
	s, p := faulty(t)
	s.net.CutExchanges(fabrictest.Silent)
	if _, err := p.a.Dial(soon(t), p.ln.Addr().String(), gpurdma.Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{ConnectTimeout: 20 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	gone(t, p.client)
	gone(t, p.server)
	s.net.MendExchanges()
	s.net.CutExchanges(fabrictest.Reset, p.b)
	if _, err := p.a.Dial(limited(t), p.ln.Addr().String(), gpurdma.Config{}); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("%v", err)
	}
}

// A write that is still in the network when its connection is closed lands only if the peer has
// not confirmed the end: then Close says that the outcome is unknown.
func TestLatePacket(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(map[bool]string{false: "confirmed", true: "unconfirmed"}[silent], func(t *testing.T) {
			s := inMemory(t, fabrictest.Options{})
			p := &pair{t: t, a: s.careless(t), b: s.careless(t)}
			p.ln = must(p.b.Listen(s.listen, gpurdma.Config{}))(t) // it is patient
			p.client, p.server = p.connect(impatient)
			mine, theirs, remote := p.both(8)
			put(t, mine, []byte("12345678"))
			here, there := s.net.NIC(p.a, ""), s.net.NIC(p.b, "")
			here.Hold(there, true)
			x := must(p.client.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: mine.All(), Remote: remote}))(t)
			if silent {
				s.net.CutExchanges(fabrictest.Silent, p.a)
			}
			closed := p.client.Close()
			<-x.Done()
			if x.Err() == nil {
				t.Error("a write that got no answer has succeeded")
			}
			if unknown := errors.Is(closed, gpurdma.ErrOutcomeUnknown); unknown != silent || closed != nil != silent {
				t.Errorf("Close: %v", closed)
			}
			if kept, landed, _ := s.net.Late(); kept != 1 || landed != 0 {
				t.Errorf("%d operations are in the network, %d have landed", kept, landed)
			}
			here.Hold(there, false)
			want := make([]byte, 8)
			if silent {
				want = []byte("12345678")
			}
			same(t, "after Close", theirs, want)
			s.net.MendExchanges()
		})
	}
}
