// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Import waits for Export, its context, or the end of the connection.
func testImport(t *testing.T, s *setting) {
	p := s.pair(t)
	theirs := host(t, p.b, 8)
	if _, err := p.client.Import(soon(t), "never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("never exported: %v", err)
	}
	var e errs
	e.t = t
	e.do(5, func(int) error { // several may wait for one name
		r, err := p.client.Import(limited(t), "late")
		if err == nil && r.Size() != 3 {
			return errors.New("a wrong size")
		}
		return err
	})
	time.Sleep(time.Millisecond)
	ok(t, p.server.Export("late", theirs.Range(2, 3), gpurdma.ReadOnly))
	e.wg.Wait()
	must(p.client.Import(limited(t), "late"))(t) // and again
	if err := p.server.Export("late", theirs.All(), all); !errors.Is(err, unix.EEXIST) {
		t.Errorf("exported twice: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("x", 256)} {
		if err := p.server.Export(name, theirs.All(), all); err == nil {
			t.Errorf("exported under a name of %d bytes", len(name))
		}
	}
	ok(t, p.server.Unexport("late"))
	if err := p.server.Unexport("late"); err == nil {
		t.Error("unexported twice")
	}
	if err := p.server.Unexport("never"); err == nil {
		t.Error("unexported what was not exported")
	}
	ok(t, p.server.Export("late", theirs.Range(0, 4), gpurdma.ReadOnly))
	for ctx := limited(t); must(p.client.Import(ctx, "late"))(t).Size() != 4; { // TCP brings the news
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			t.Fatal("an older export")
		}
	}
	if err := p.server.Export("nothing", gpurdma.Span{}, all); err == nil {
		t.Error("no memory was exported")
	}
	if err := p.server.Export("no access", theirs.All(), 0); err == nil {
		t.Error("memory was exported without access")
	}
	mine := host(t, p.a, 8)
	ok(t, p.client.Export("late", mine.All(), all)) // both sides have names of their own
	if r := must(p.server.Import(limited(t), "late"))(t); r.Size() != 8 {
		t.Errorf("%d bytes", r.Size())
	}
	e.do(1, func(int) error {
		if _, err := p.client.Import(limited(t), "never"); !errors.Is(err, gpurdma.ErrPeerGone) {
			return err
		}
		return nil
	})
	time.Sleep(time.Millisecond)
	ok(t, p.server.Close())
	e.wg.Wait()
	if err := p.server.Export("closed", theirs.All(), all); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("exported on a closed connection: %v", err)
	}
}

// A descriptor reaches the peer by means of the program's.
func testDescriptor(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs := host(t, p.a, 100), host(t, p.b, 100)
	put(t, mine, []byte("12345"))
	r := must(p.server.Share(theirs.Range(10, 50), gpurdma.WriteOnly))(t)
	wire := must(r.MarshalBinary())(t)
	if _, err := r.Range(0, 10).MarshalBinary(); err == nil {
		t.Error("a range was encoded")
	}
	var m gpurdma.Remote
	ok(t, m.UnmarshalBinary(wire))
	if m.Size() != 50 || m.Access() != gpurdma.WriteOnly || m.Access().String() != "write" {
		t.Errorf("%d bytes, %v", m.Size(), m.Access())
	}
	ok(t, p.client.Write(limited(t), m.Range(45, 5), mine.Range(0, 5)))
	p.settle()
	want := make([]byte, 100)
	copy(want[55:], "12345")
	same(t, "by a descriptor", theirs, want)
	for i := range wire {
		if new(gpurdma.Remote).UnmarshalBinary(wire[:i]) == nil {
			_ = new(gpurdma.Remote).UnmarshalBinary(wire[:i]) // the zero layout is valid, and has no bytes
		}
	}
	if err := new(gpurdma.Remote).UnmarshalBinary(nil); err == nil {
		t.Error("nothing was decoded")
	}
	var none gpurdma.Remote
	if _, err := none.MarshalBinary(); err == nil {
		t.Error("no memory was encoded")
	}
}

// gone waits for the end of a connection.
func gone(t testing.TB, c *gpurdma.Conn) error {
	t.Helper()
	select {
	case <-c.Done():
	case <-limited(t).Done():
		t.Fatal("the connection has not ended")
	}
	if c.Err() == nil {
		t.Fatal("the connection has ended without a reason")
	}
	return c.Err()
}

// An access with a key that was withdrawn fails, and ends the connection on both sides, but no
// other.
func testRefusedKey(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs := host(t, p.a, 8), host(t, p.b, 8)
	put(t, mine, []byte("12345678"))
	c2, s2 := p.connect(gpurdma.Config{})
	r2 := p.exportTo(s2, c2, theirs.All(), all)
	for _, op := range []gpurdma.OpKind{gpurdma.OpWrite, gpurdma.OpRead, gpurdma.OpFetchAdd} {
		client, server := p.connect(gpurdma.Config{})
		ok(t, server.Export("withdrawn", theirs.All(), all))
		r := must(client.Import(limited(t), "withdrawn"))(t)
		ok(t, client.Write(limited(t), r, mine.All()))
		ok(t, server.Unexport("withdrawn"))
		x := must(client.Start(limited(t), gpurdma.Op{Kind: op, Local: mine.All(), Remote: r}))(t)
		<-x.Done()
		err := x.Err()
		if !errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}) {
			t.Errorf("%v: %v", op, err)
		}
		var e *gpurdma.OpError
		if !errors.As(err, &e) || e.Op != op || e.NIC != s.nics[0] || e.Peer == nil {
			t.Errorf("%v: %#v", op, err)
		}
		if err := gone(t, client); errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("%v: the client has not closed: %v", op, err)
		}
		if err := gone(t, server); errors.Is(err, gpurdma.ErrClosed) { // its NIC may have ended it first
			t.Errorf("%v: the server has not closed: %v", op, err)
		}
		if err := client.Write(limited(t), r, mine.All()); err == nil {
			t.Errorf("%v: a write on a connection that has ended", op)
		}
		ok(t, client.Close())
		ok(t, server.Close())
	}
	p.alive()
	ok(t, c2.Write(limited(t), r2, mine.All()))
	p.say(c2, s2)
	same(t, "on another connection", theirs, []byte("12345678"))
}

// Memory that was exported on one connection cannot be used on another one.
func testStaleKey(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	c2, s2 := p.connect(gpurdma.Config{})
	for _, c := range []*gpurdma.Conn{c2, p.server} {
		local := mine
		if c == p.server {
			local = theirs
		}
		if err := c.Write(limited(t), remote, local.All()); !errors.Is(err, gpurdma.ErrStaleKey) {
			t.Errorf("write: %v", err)
		}
		if err := c.Read(limited(t), local.All(), remote); !errors.Is(err, gpurdma.ErrStaleKey) {
			t.Errorf("read: %v", err)
		}
		if _, err := c.FetchAdd(limited(t), remote, 1); !errors.Is(err, gpurdma.ErrStaleKey) {
			t.Errorf("atomic: %v", err)
		}
	}
	p.alive()
	p.say(c2, s2)
	ok(t, p.client.Close())
	gone(t, p.server)
	p.client, p.server = p.connect(gpurdma.Config{})
	if err := p.client.Write(limited(t), remote, mine.All()); !errors.Is(err, gpurdma.ErrStaleKey) {
		t.Errorf("after a reconnect: %v", err)
	}
	p.alive()
}

// An access that the peer does not allow is refused before it is posted.
func testAccessRefused(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		mine, theirs := host(t, p.a, 8), k.alloc(t, p.b, 8)
		for _, access := range []gpurdma.Access{gpurdma.ReadOnly, gpurdma.WriteOnly, gpurdma.ReadWrite, gpurdma.ReadOnly | gpurdma.Atomic, all} {
			r := p.export(theirs.All(), access)
			for _, x := range []struct {
				what string
				may  bool
				err  error
			}{
				{"write", access&gpurdma.WriteOnly != 0, p.client.Write(limited(t), r, mine.All())},
				{"read", access&gpurdma.ReadOnly != 0, p.client.Read(limited(t), mine.All(), r)},
				{"atomic", access&gpurdma.Atomic != 0, second(p.client.FetchAdd(limited(t), r, 0))},
			} {
				if (x.err == nil) != x.may || x.err != nil && !errors.Is(x.err, unix.EACCES) {
					t.Errorf("%s, %v: %s: %v", k.name, access, x.what, x.err)
				}
			}
		}
	}
	p.alive()
}

func second[T any](_ T, err error) error { return err }

// Ranges that do not fit are refused before anything is posted, wherever they come from.
func testOutOfRange(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(100)
	for _, x := range [][2]int64{{-1, 1}, {0, 101}, {100, 1}, {101, 0}, {0, -1}, {math.MaxInt64, 1}, {1, math.MaxInt64}, {math.MinInt64, 0}} {
		l, r := mine.Range(x[0], x[1]), remote.Range(x[0], x[1])
		if l.Size() != 0 || r.Size() != 0 || !errors.Is(l.Err(), failure.ErrRange) || !errors.Is(r.Err(), failure.ErrRange) {
			t.Errorf("%v: %v, %v", x, l.Err(), r.Err())
		}
		for what, err := range map[string]error{
			"write from":    p.client.Write(limited(t), remote, l),
			"write to":      p.client.Write(limited(t), r, mine.All()),
			"read into":     p.client.Read(limited(t), l, remote),
			"read from":     p.client.Read(limited(t), mine.All(), r),
			"a range of it": p.client.Read(limited(t), mine.Range(0, 0), r.Range(0, 0)),
			"atomic":        second(p.client.FetchAdd(limited(t), r, 1)),
			"export":        p.client.Export("x", l, all),
			"share":         second(p.client.Share(l, all)),
		} {
			if !errors.Is(err, failure.ErrRange) {
				t.Errorf("%v: %s: %v", x, what, err)
			}
		}
	}
	for what, err := range map[string]error{
		"sizes":      p.client.Write(limited(t), remote.Range(0, 9), mine.Range(0, 10)),
		"a view":     p.client.Write(limited(t), remote.Range(0, 8), mine.View(gpurdma.SG(gpurdma.Extent{Off: 96, Len: 8}))),
		"a remote":   p.client.Write(limited(t), remote.View(gpurdma.SG(gpurdma.Extent{Off: 96, Len: 8})), mine.Range(0, 8)),
		"a source":   p.client.Write(limited(t), remote.Range(0, 8), mine.View(gpurdma.SG(gpurdma.Extent{Source: 1, Len: 8}))),
		"a layout":   p.client.Write(limited(t), remote.Range(0, 8), mine.View(gpurdma.SG(gpurdma.Extent{Off: -1, Len: 8}))),
		"no layout":  p.client.Write(limited(t), remote.Range(0, 8).View(gpurdma.SG(gpurdma.Extent{Len: 8})), mine.Range(0, 8)),
		"no remote":  p.client.Write(limited(t), gpurdma.Remote{}, mine.Range(0, 8)),
		"nil buffer": p.client.Write(limited(t), remote.Range(0, 8), (*gpurdma.Buffer)(nil).All()),
		"no source":  p.client.Write(limited(t), remote.Range(0, 8), gpurdma.View(gpurdma.SG(gpurdma.Extent{Len: 8}))),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	p.settle()
	same(t, "nothing was written", theirs, make([]byte, 100))
	p.alive()
}

// Operations that make no sense are refused before they are posted.
func testWrongOperations(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	l, r := mine.All(), remote
	for what, op := range map[string]gpurdma.Op{
		"no kind":                {Local: l, Remote: r},
		"unknown kind":           {Kind: 99, Local: l, Remote: r},
		"negative kind":          {Kind: -1, Local: l, Remote: r},
		"a send of memory":       {Kind: gpurdma.OpSend, Local: l},
		"a send to memory":       {Kind: gpurdma.OpSend, Remote: r},
		"a send that notifies":   {Kind: gpurdma.OpSend, Notify: true},
		"a read that notifies":   {Kind: gpurdma.OpRead, Local: l, Remote: r, Notify: true},
		"an atomic, notifying":   {Kind: gpurdma.OpFetchAdd, Remote: r, Notify: true},
		"inline and memory":      {Kind: gpurdma.OpWrite, Local: l, Remote: r, Inline: []byte("12345678")},
		"an inline read":         {Kind: gpurdma.OpRead, Remote: r, Inline: []byte("12345678")},
		"a write of no memory":   {Kind: gpurdma.OpWrite, Remote: r},
		"a write to no memory":   {Kind: gpurdma.OpWrite, Local: l},
		"an atomic of no memory": {Kind: gpurdma.OpFetchAdd},
		"an atomic of 16 bytes":  {Kind: gpurdma.OpFetchAdd, Local: l, Locals: []gpurdma.Span{l}, Remote: r, Remotes: []gpurdma.Remote{r}},
		"a short old value":      {Kind: gpurdma.OpFetchAdd, Local: mine.Range(0, 4), Remote: r},
	} {
		x, err := p.client.Start(limited(t), op)
		if err == nil {
			<-x.Done()
			t.Errorf("%s: it was posted: %v", what, x.Err())
		}
	}
	p.alive()
	same(t, "nothing was done", theirs, make([]byte, 8))
}
