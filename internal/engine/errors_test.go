// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// failed waits for a completion with an error of that status.
func (w *world) failed(e *Endpoint, context any, status ibvfd.WCStatus) {
	w.t.Helper()
	c := w.wait(e)
	var op *operation.Error
	var wc *ibvfd.WCError
	if c.Context != context || !errors.As(c.Err, &op) || op.Op != c.Op || op.Peer != c.Peer || !errors.As(c.Err, &wc) || wc.Status != status {
		w.t.Fatalf("completion %+v, want %v with context %v", c, status, context)
	}
}

// lost waits until the connection of e has ended, and checks that nothing is left of it.
func (w *world) lost(e *Endpoint, p operation.Peer) {
	w.t.Helper()
	buf := must(e.nic.AllocHost(8))(w.t)
	defer buf.Close()
	for {
		err := e.Send(buf.All(), p, "probe")
		if errors.Is(err, ErrNotConnected) {
			break
		}
		w.ok(err)
		if c := w.wait(e); c.Err == nil {
			w.t.Fatalf("completion %+v on a connection that is lost", c)
		}
	}
	if err := e.Lost(limited(w.t), p); !errors.Is(err, ErrNotConnected) { // the keys are withdrawn now
		w.t.Error(err)
	}
	if n, err := e.Poll(make([]operation.Completion, 4)); n != 0 || err != nil {
		w.t.Errorf("%d completions are left, %v", n, err)
	}
}

func TestRemoteRefusals(t *testing.T) { testRemoteRefusals(t, inMemory(t)) }

// An operation that the peer's NIC refuses completes with an error in time; no byte moves, all
// other operations under way complete, and a new connection works.
func testRemoteRefusals(t *testing.T, s setting) {
	r := testenv.Seeded(t)
	for _, c := range []struct {
		name   string
		access ibvfd.Access
		change func(p *lower.Piece)
		post   func(w *world, l memory.Span, rb *memory.RemoteBuffer) error
	}{
		{"wrong rkey", allAccess, func(p *lower.Piece) { p.Key ^= 0xff }, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Write(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"wrong rkey, read", allAccess, func(p *lower.Piece) { p.Key ^= 0xff }, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Read(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"past the end", allAccess, func(p *lower.Piece) { p.Addr++ }, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Write(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"before the start", allAccess, func(p *lower.Piece) { p.Addr-- }, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Read(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"write to what is for reading", ibvfd.AccessRemoteRead, func(p *lower.Piece) {}, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			*rb = *withAccess(rb, allAccess)
			return w.a.Write(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"read of what is for writing", ibvfd.AccessRemoteWrite, func(p *lower.Piece) {}, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			*rb = *withAccess(rb, allAccess)
			return w.a.Read(l, w.ab, rb.Part(0, l.Length), "bad")
		}},
		{"atomic on what is for writing", ibvfd.AccessRemoteWrite, func(p *lower.Piece) {}, func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			*rb = *withAccess(rb, allAccess)
			return w.a.FetchAdd(memory.Span{Buf: l.Buf, Length: 8}, w.ab, rb.Part(0, 8), 1, "bad")
		}},
	} {
		for _, k := range s.kinds {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				w := s.world(t, EndpointOptions{})
				const size = 1000
				mine, theirs := k.make(t, w.a.nic, size), k.make(t, w.b.nic, size)
				here, there := random(t, r, mine, size), random(t, r, theirs, size)
				rb := forged(w.share(theirs.All(), c.access), c.change)
				w.ok(w.a.Recv(memory.Span{}, w.ab, "receive"))
				w.ok(c.post(w, mine.All(), rb))
				w.failed(w.a, "bad", ibvfd.WCRemAccessErr)
				w.failed(w.a, "receive", ibvfd.WCWRFlushErr)
				w.lost(w.a, w.ab)
				same(t, "here", mine, here)
				same(t, "there", theirs, there)
				w.lost(w.b, w.ba)
				// Both endpoints stay usable, with a new connection and new keys.
				w.connect()
				if err := w.a.Write(mine.All(), w.ab, rb.All(), nil); !errors.Is(err, operation.ErrStaleKey) {
					t.Errorf("a key of the connection before: %v", err)
				}
				w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), ibvfd.AccessRemoteWrite).All(), 1))
				w.done(w.a, operation.Write, 1)
				same(t, "after recovery", theirs, here)
			})
		}
	}
}

// The error of a completion includes the NIC's own code: of sends, of receives, and of the
// operations flushed behind them. Vendors ask for it.
func TestVendorCode(t *testing.T) {
	coded := func(w *world, e *Endpoint, context any, status ibvfd.WCStatus) {
		t.Helper()
		c := w.wait(e)
		var wc *ibvfd.WCError
		if c.Context != context || !errors.As(c.Err, &wc) || wc.Status != status || wc.VendorErr != vendorErr(status) {
			t.Errorf("completion %+v, want %v with code %#x and context %v", c, status, vendorErr(status), context)
		} else if code := fmt.Sprintf("%#x", wc.VendorErr); !strings.Contains(c.Err.Error(), code) {
			t.Errorf("%q does not name the code %s", c.Err, code)
		}
	}
	s := inMemory(t)
	for name, post := range map[string]func(w *world, l memory.Span, rb *memory.RemoteBuffer) error{
		"write": func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Write(l, w.ab, rb.All(), "bad")
		},
		"read": func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.Read(l, w.ab, rb.All(), "bad")
		},
		"atomic": func(w *world, l memory.Span, rb *memory.RemoteBuffer) error {
			return w.a.FetchAdd(l, w.ab, rb.All(), 1, "bad")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.world(t, EndpointOptions{})
			mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 8)
			rb := forged(w.share(theirs.All(), allAccess), func(p *lower.Piece) { p.Key ^= 0xff })
			w.ok(w.a.Recv(memory.Span{}, w.ab, "receive"))
			w.ok(post(w, mine.All(), rb))
			coded(w, w.a, "bad", ibvfd.WCRemAccessErr)
			coded(w, w.a, "receive", ibvfd.WCWRFlushErr)
		})
	}
	t.Run("message", func(t *testing.T) {
		w := s.world(t, EndpointOptions{})
		mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 7)
		w.ok(w.b.Recv(theirs.All(), w.ba, "short"))
		w.ok(w.a.Send(mine.All(), w.ab, "long"))
		coded(w, w.a, "long", ibvfd.WCRemInvReqErr)
		coded(w, w.b, "short", ibvfd.WCLocLenErr)
	})
}

func TestForgedToken(t *testing.T) { testForgedToken(t, inMemory(t)) }

// Keys end with their connection, enforced by the peer's NIC: it refuses an old key that a
// program passes off as the new connection's.
func testForgedToken(t *testing.T, s setting) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			r := testenv.Seeded(t)
			w := s.world(t, EndpointOptions{})
			const size = 1000
			mine, theirs := k.make(t, w.a.nic, size), k.make(t, w.b.nic, size)
			here := random(t, r, mine, size)
			old := w.share(theirs.All(), allAccess)
			w.ok(w.a.Write(mine.All(), w.ab, old.All(), "while it lasts"))
			w.done(w.a, operation.Write, "while it lasts")
			same(t, "while it lasts", theirs, here)
			there := random(t, r, theirs, size)
			w.ok(w.a.Remove(w.ab))
			w.lost(w.b, w.ba)
			for name, post := range map[string]func(rb *memory.RemoteBuffer) error{
				"write": func(rb *memory.RemoteBuffer) error { return w.a.Write(mine.All(), w.ab, rb.All(), "forged") },
				"read":  func(rb *memory.RemoteBuffer) error { return w.a.Read(mine.All(), w.ab, rb.All(), "forged") },
				"atomic": func(rb *memory.RemoteBuffer) error {
					return w.a.FetchAdd(memory.Span{Buf: mine, Length: 8}, w.ab, rb.Part(0, 8), 1, "forged")
				},
			} {
				w.connect()
				now := w.share(theirs.All(), allAccess)
				if err := post(old); !errors.Is(err, operation.ErrStaleKey) {
					t.Errorf("%s: an old key as it is: %v", name, err)
				}
				w.ok(post(withToken(old, now.Token())))
				w.failed(w.a, "forged", ibvfd.WCRemAccessErr)
				w.lost(w.a, w.ab)
				w.lost(w.b, w.ba)
				same(t, name+", here", mine, here)
				same(t, name+", there", theirs, there)
			}
			w.connect()
			w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), 1))
			w.done(w.a, operation.Write, 1)
			same(t, "with a new key", theirs, here)
		})
	}
}

func TestReceiverNotReady(t *testing.T) { testReceiverNotReady(t, inMemory(t)) }

func testReceiverNotReady(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	buf := hostKind.make(t, w.a.nic, 100)
	w.ok(w.a.Send(buf.All(), w.ab, "nobody"))
	w.failed(w.a, "nobody", ibvfd.WCRNRRetryExcErr)
	w.lost(w.a, w.ab)
}

func TestMessageTooLong(t *testing.T) { testMessageTooLong(t, inMemory(t)) }

func testMessageTooLong(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	buf, into := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 99)
	w.ok(w.b.Recv(into.All(), w.ba, "short"))
	w.ok(w.a.Send(buf.All(), w.ab, "long"))
	if c := w.wait(w.a); c.Err == nil || c.Context != "long" {
		t.Fatalf("%+v", c)
	}
	if c := w.wait(w.b); c.Err == nil || c.Context != "short" {
		t.Fatalf("%+v", c)
	}
	w.lost(w.a, w.ab)
	w.lost(w.b, w.ba)
}

func TestPeerDisappears(t *testing.T) { testPeerDisappears(t, inMemory(t)) }

// The peer's endpoint closes: every operation under way completes in time.
func testPeerDisappears(t *testing.T, s setting) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			w := s.world(t, EndpointOptions{})
			buf := k.make(t, w.a.nic, 4000)
			w.ok(w.a.Recv(buf.All(), w.ab, 0))
			w.ok(w.a.Recv(buf.All(), w.ab, 1))
			w.ok(w.b.Close())
			for i := range 2 {
				if c := w.wait(w.a); c.Context != i || !errors.Is(c.Err, ErrNotConnected) || c.Op != operation.Recv {
					t.Fatalf("%+v", c)
				}
			}
			w.lost(w.a, w.ab)
			if err := w.b.Send(memory.Span{}, w.ba, nil); !errors.Is(err, os.ErrClosed) {
				t.Errorf("on a closed endpoint: %v", err)
			}
		})
	}
}

func TestCancelled(t *testing.T) { testCancelled(t, inMemory(t)) }

// A cancelled wait ends; the operation that it waited for continues.
func testCancelled(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	buf := hostKind.make(t, w.a.nic, 64)
	w.ok(w.a.Recv(buf.All(), w.ab, "r"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, f := range map[string]func() error{
		"Wait":    func() error { _, err := w.a.Wait(ctx, make([]operation.Completion, 1)); return err },
		"Accept":  func() error { _, err := w.b.Accept(ctx); return err },
		"Offered": func() error { _, err := w.b.Offered(ctx, w.ba); return err },
		"Connect": func() error { _, err := w.b.Connect(ctx, "127.0.0.1:1"); return err },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	from := hostKind.make(t, w.b.nic, 64)
	w.ok(w.b.Send(from.All(), w.ba, "s"))
	w.done(w.b, operation.Send, "s")
	w.done(w.a, operation.Recv, "r")
	if got := w.b.Peers(); len(got) != 1 {
		t.Errorf("a peer of a Connect that failed stays: %v", got)
	}
}

// Errors before the NIC is asked change nothing.
func TestRefusedBeforehand(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{InjectSize: 32})
	other := hostKind.make(t, s.open(t, memory.NICOptions{}), 100)
	mine, theirs := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 100)
	ro := must(mine.ReadOnlySlice(0, 50))(t)
	closing(t, ro)
	all := w.share(theirs.All(), allAccess)
	read := w.share(theirs.All(), ibvfd.AccessRemoteRead)
	write := w.share(theirs.All(), ibvfd.AccessRemoteWrite)
	split := must(all.View(must(layout.SG(layout.Extent{Off: 8, Len: 4}, layout.Extent{Off: 40, Len: 4}))(t)))(t)
	pair := w.share(wholeOf(t, theirs, hostKind.make(t, w.b.nic, 100)), allAccess)
	closed := must(w.a.nic.AllocHost(8))(t)
	w.ok(closed.Close())
	l := mine.All()
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"longer here":               {w.a.Write(l, w.ab, all.Part(0, 99), nil), failure.ErrRange},
		"past the end here":         {w.a.Write(memory.Span{Buf: mine, Offset: 1, Length: 100}, w.ab, all.Part(0, 100), nil), failure.ErrRange},
		"negative offset":           {w.a.Write(memory.Span{Buf: mine, Offset: -1, Length: 1}, w.ab, all.Part(0, 1), nil), failure.ErrRange},
		"negative length":           {w.a.Write(memory.Span{Buf: mine, Length: -1}, w.ab, all.Part(0, 1), nil), failure.ErrRange},
		"past the end there":        {w.a.Read(l, w.ab, all.Part(1, 100), nil), failure.ErrRange},
		"overflow there":            {w.a.Read(l, w.ab, all.Part(math.MaxInt64, 100), nil), failure.ErrRange},
		"no remote memory":          {w.a.Write(l, w.ab, memory.RemoteSpan{Length: 100}, nil), unix.EINVAL},
		"no local memory":           {w.a.Write(memory.Span{Length: 9}, w.ab, all.Part(0, 9), nil), unix.EINVAL},
		"write to what is read":     {w.a.Write(l, w.ab, read.All(), nil), unix.EACCES},
		"read of what is written":   {w.a.Read(l, w.ab, write.All(), nil), unix.EACCES},
		"atomic on it":              {w.a.FetchAdd(memory.Span{Buf: mine, Length: 8}, w.ab, write.Part(0, 8), 1, nil), unix.EACCES},
		"read into read-only":       {w.a.Read(ro.All(), w.ab, all.Part(0, 50), nil), unix.EACCES},
		"receive into read-only":    {w.a.Recv(ro.All(), w.ab, nil), unix.EACCES},
		"atomic of 4 bytes":         {w.a.FetchAdd(memory.Span{Buf: mine, Length: 4}, w.ab, all.Part(0, 4), 1, nil), failure.ErrRange},
		"atomic that is askew":      {w.a.CompareSwap(memory.Span{Buf: mine, Length: 8}, w.ab, all.Part(4, 8), 1, 2, nil), unix.EINVAL},
		"atomic in two pieces":      {w.a.FetchAdd(memory.Span{Buf: mine, Length: 8}, w.ab, split.All(), 1, nil), unix.EINVAL},
		"a buffer of another NIC":   {w.a.Write(other.All(), w.ab, all.All(), nil), unix.EINVAL},
		"a closed buffer":           {w.a.Write(closed.All(), w.ab, all.Part(0, 8), nil), os.ErrClosed},
		"too much to inject":        {w.a.InjectWrite(make([]byte, 33), w.ab, all.Part(0, 33)), failure.ErrLimit},
		"data of 33 bits":           {w.a.WriteData(l, 1<<32, w.ab, all.All(), nil), failure.ErrRange},
		"no such peer":              {w.a.Write(l, w.ab+9, all.All(), nil), ErrNotConnected},
		"peer 0":                    {w.a.Send(l, 0, nil), ErrNotConnected},
		"commit-complete":           {w.a.WriteMsg(rma.Msg{}, operation.FlagCommitComplete), unix.EOPNOTSUPP},
		"an injected read":          {w.a.ReadMsg(rma.Msg{}, operation.FlagInject), unix.EOPNOTSUPP},
		"a read with data":          {w.a.ReadMsg(rma.Msg{}, operation.FlagRemoteCQData), unix.EOPNOTSUPP},
		"a message delivered":       {w.a.SendMsg(rma.Msg{}, operation.FlagDeliveryComplete), unix.EOPNOTSUPP},
		"an injected atomic":        {w.a.FetchAddMsg(rma.Msg{}, 1, operation.FlagInject), unix.EOPNOTSUPP},
		"an atomic with data":       {w.a.CompareSwapMsg(rma.Msg{}, 1, 2, operation.FlagRemoteCQData), unix.EOPNOTSUPP},
		"a durable atomic":          {w.a.FetchAddMsg(rma.Msg{}, 1, operation.FlagCommitComplete), unix.EOPNOTSUPP},
		"an atomic of two results":  {w.a.FetchAddMsg(rma.Msg{Local: []memory.Span{{Buf: mine, Length: 4}, {Buf: mine, Offset: 8, Length: 4}}, Peer: w.ab, Remote: []memory.RemoteSpan{all.Part(0, 8)}}, 1, 0), unix.EINVAL},
		"an atomic at two places":   {w.a.CompareSwapMsg(rma.Msg{Local: []memory.Span{{Buf: mine, Length: 8}}, Peer: w.ab, Remote: []memory.RemoteSpan{all.Part(0, 8), all.Part(8, 8)}}, 1, 2, 0), failure.ErrRange},
		"an atomic on nothing":      {w.a.FetchAddMsg(rma.Msg{Peer: w.ab}, 1, 0), failure.ErrRange},
		"an unknown flag":           {w.a.WriteMsg(rma.Msg{}, 1<<30), unix.EOPNOTSUPP},
		"delivery, not to be read":  {w.a.WriteMsg(rma.Msg{Local: []memory.Span{l}, Peer: w.ab, Remote: []memory.RemoteSpan{write.All()}}, operation.FlagDeliveryComplete), unix.EACCES},
		"delivery to two":           {w.a.WriteMsg(rma.Msg{Local: []memory.Span{l, l}, Peer: w.ab, Remote: []memory.RemoteSpan{all.All(), w.share(theirs.All(), allAccess).All()}}, operation.FlagDeliveryComplete), unix.EOPNOTSUPP},
		"delivery to two of a peer": {w.a.WriteMsg(rma.Msg{Local: []memory.Span{l, l}, Peer: w.ab, Remote: []memory.RemoteSpan{pair.All()}}, operation.FlagDeliveryComplete), unix.EOPNOTSUPP},
		"shared for nothing":        {second(w.a.Share(w.ab, l, 0)), unix.EINVAL},
		"shared for local use":      {second(w.a.Share(w.ab, l, ibvfd.AccessLocalWrite)), unix.EINVAL},
		"read-only shared to write": {second(w.a.Share(w.ab, ro.All(), allAccess)), unix.EACCES},
		"shared beyond":             {second(w.a.Share(w.ab, memory.Span{Buf: mine, Offset: 99, Length: 2}, allAccess)), failure.ErrRange},
		"depth":                     {second(NewEndpoint(w.a.nic, EndpointOptions{Depth: -1})), failure.ErrRange},
		"view of what is not there": {second(all.View(must(layout.Contiguous(1, 100))(t))), failure.ErrRange},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if n, err := w.a.Poll(make([]operation.Completion, 1)); n != 0 || err != nil {
		t.Errorf("%d completions of what was refused, %v", n, err)
	}
	w.ok(w.a.Write(l, w.ab, all.All(), 1))
	w.done(w.a, operation.Write, 1)
}

// The NIC's status of an operation is reported, even if the peer's end of the connection
// arrives first.
func TestPeerEndsBeforeTheAnswer(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 100)
	rb := w.share(theirs.All(), allAccess)
	l := w.a.linkTo(w.ab)
	l.Slow(1 << 30)
	w.ok(w.a.Read(mine.All(), w.ab, rb.All(), "bad"))
	w.ok(w.b.Remove(w.ba))
	// The peer's queue pairs are destroyed.
	l.Slow(3)
	for ended := false; !ended; runtime.Gosched() { // no other goroutine polls
		ended = w.a.connTo(w.ab).Works.Over()
	}
	w.failed(w.a, "bad", ibvfd.WCRetryExcErr)
}

// If the NIC refuses a work request in the middle of a batch, the connection and all
// operations end, without a wait for completions that cannot come.
func TestPostRefused(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 100), hostKind.make(t, w.b.nic, 100)
	rb := w.share(theirs.All(), allAccess)
	l := w.a.linkTo(w.ab)
	const n = 10
	for i := range n {
		w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: i}, operation.FlagMore))
	}
	l.Refuse(4)
	if _, err := w.a.Poll(nil); err != nil {
		t.Error(err)
	}
	if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if polls := l.Queue().Polls(); polls > 10 {
		t.Errorf("polled %d times", polls)
	}
	for i := range n {
		// The peer may end its link before the NIC has carried out the first ones.
		if c := w.wait(w.a); c.Context != i || !errors.Is(c.Err, ErrNotConnected) && !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) {
			t.Errorf("operation %d: %+v", i, c)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The exchange is refused in plaintext with other machines.
func TestPlaintextIsRefused(t *testing.T) {
	s := inMemory(t)
	e := s.endpoint(t, EndpointOptions{})
	if _, err := e.Listen("0.0.0.0:0"); !errors.Is(err, ErrUnsafe) {
		t.Errorf("listening to everybody: %v", err)
	}
	plain := &EndpointOptions{}
	far := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	if err := plain.protection().MayBePlain(far); !errors.Is(err, ErrUnsafe) {
		t.Errorf("far away: %v", err)
	}
	plain.AllowPlaintext = true
	if err := plain.protection().MayBePlain(far); err != nil {
		t.Errorf("in words: %v", err)
	}
}

// A range error names the side of the range, and errors of NICs for a message that is too long
// say that it is too long.
func TestRemedies(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine := hostKind.make(t, w.a.nic, 100)
	all := w.share(hostKind.make(t, w.b.nic, 100).All(), allAccess)
	for name, c := range map[string]struct {
		err    error
		remote bool
	}{
		"here":  {w.a.Write(memory.Span{Buf: mine, Offset: 1, Length: 100}, w.ab, all.Part(0, 100), nil), false},
		"there": {w.a.Write(mine.All(), w.ab, all.Part(1, 100), nil), true},
	} {
		text := fmt.Sprint(c.err)
		if !errors.Is(c.err, failure.ErrRange) || strings.Contains(text, "the peer's buffer") != c.remote || strings.Contains(text, "local buffer host (100 bytes)") == c.remote || !strings.Contains(text, "offset 1, length 100, of 100 bytes") || !strings.Contains(text, "stay within them") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, s := range []ibvfd.WCStatus{ibvfd.WCLocLenErr, ibvfd.WCRemInvReqErr, ibvfd.WCRemOpErr, ibvfd.WCLocQPOpErr} {
		if r := operation.Remedy(&ibvfd.WCError{Status: s}); !strings.Contains(r, "longer than") {
			t.Errorf("%v: %q", s, r)
		}
	}
}
