// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/failure"
)

// A buffer lives until its last reference is released, or until Close.
func testBufferReferences(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		theirs := host(t, p.b, 8)
		remote := p.export(theirs.All(), all)
		b := k.alloc(t, p.a, 8)
		ok(t, b.Retain())
		ok(t, b.Release())
		put(t, b, []byte("12345678"))
		ok(t, p.client.Write(limited(t), remote, b.All()))
		ok(t, b.Release())
		for what, err := range map[string]error{
			"Release": b.Release(),
			"Retain":  b.Retain(),
			"WriteAt": second(b.WriteAt([]byte("1"), 0)),
			"ReadAt":  second(b.ReadAt([]byte("1"), 0)),
			"Slice":   second(b.Slice(0, 1)),
			"Write":   p.client.Write(limited(t), remote, b.All()),
			"Read":    p.client.Read(limited(t), b.All(), remote),
			"View":    p.client.Write(limited(t), remote, b.View(gpurdma.SG(gpurdma.Extent{Len: 8}))),
			"Export":  p.client.Export("closed", b.All(), all),
			"Sync":    b.Sync(),
			"Flush":   b.Flush(limited(t)),
		} {
			if !errors.Is(err, gpurdma.ErrClosed) {
				t.Errorf("%s: %s of a closed buffer: %v", k.name, what, err)
			}
		}
		ok(t, b.Close())
		ok(t, b.Free())
		c := k.alloc(t, p.a, 8)
		ok(t, c.Retain())
		ok(t, c.Close()) // whatever references there are
		if err := c.Release(); !errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("%s: Release after Close: %v", k.name, err)
		}
	}
	for _, size := range []int64{0, -1, -1 << 60} {
		for _, k := range s.kinds {
			if _, err := p.a.Alloc(limited(t), k.spec, size); err == nil {
				t.Errorf("%s: %d bytes were allocated", k.name, size)
			}
		}
	}
	if s.net == nil {
		if _, err := p.a.Alloc(limited(t), "nonsense", 8); err == nil {
			t.Error("nonsense was allocated")
		}
	}
	if _, err := p.a.Register(limited(t), nil); err == nil {
		t.Error("nothing was registered")
	}
}

// Free refuses while the buffer is needed, and leaves it as it was.
func testBufferFree(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		b, theirs := k.alloc(t, p.b, 64), host(t, p.a, 64)
		refused := func(why string) {
			t.Helper()
			if err := b.Free(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("%s: %s: %v", k.name, why, err)
			}
			put(t, b, make([]byte, 64)) // it is open
		}
		ok(t, b.Retain())
		refused("retained")
		ok(t, b.Release())
		slice := must(b.Slice(0, 8))(t)
		refused("sliced")
		ok(t, slice.Close())
		ok(t, p.server.Export(k.name, b.All(), all))
		refused("exported")
		ok(t, p.server.Unexport(k.name))
		ok(t, p.client.Export(k.name, theirs.All(), all))
		r := must(p.server.Import(limited(t), k.name))(t)
		open := gated(t, b)
		x := must(p.server.Start(limited(t), gpurdma.Op{Kind: gpurdma.OpWrite, Local: b.All(), Remote: r}))(t)
		refused("in use")
		open()
		<-x.Done()
		ok(t, x.Err())
		ok(t, b.Free())
		ok(t, b.Free())
		if _, err := b.ReadAt(make([]byte, 1), 0); !errors.Is(err, gpurdma.ErrClosed) {
			t.Errorf("%s: a freed buffer: %v", k.name, err)
		}
	}
	// A peer keeps memory that is closed.
	b := host(t, p.b, 8)
	put(t, b, []byte("12345678"))
	r := p.export(b.All(), all)
	ok(t, b.Close())
	mine := host(t, p.a, 8)
	ok(t, p.client.Read(limited(t), mine.All(), r))
	same(t, "of a closed buffer", mine, []byte("12345678"))
}

// A slice is part of its buffer's memory, with a life of its own.
func testSlices(t *testing.T, s *setting) {
	p := s.pair(t)
	for _, k := range s.kinds {
		whole, theirs := k.alloc(t, p.b, 100), host(t, p.a, 100)
		put(t, theirs, []byte("0123456789"))
		slice := must(whole.Slice(40, 20))(t)
		sub := must(slice.Slice(5, 10))(t)
		fixed := must(whole.ReadOnlySlice(40, 20))(t)
		remote := p.export(sub.All(), all)
		ok(t, p.client.Write(limited(t), remote, theirs.Range(0, 10)))
		p.settle()
		want := make([]byte, 100)
		copy(want[45:], "0123456789")
		same(t, k.name+": the buffer", whole, want)
		same(t, k.name+": its slice", slice, want[40:60])
		same(t, k.name+": a slice that does not change", fixed, want[40:60])
		if n, err := slice.ReadAt(make([]byte, 30), 10); n != 10 || !errors.Is(err, io.EOF) {
			t.Errorf("%s: read beyond the end: %d, %v", k.name, n, err)
		}
		if n, err := slice.WriteAt(make([]byte, 30), 10); n != 0 || err == nil {
			t.Errorf("%s: written beyond the end: %d, %v", k.name, n, err)
		}
		for _, x := range [][2]int64{{-1, 2}, {15, 6}, {21, 0}, {0, -1}} {
			if _, err := slice.Slice(x[0], x[1]); !errors.Is(err, failure.ErrRange) {
				t.Errorf("%s: slice %v: %v", k.name, x, err)
			}
		}
		ok(t, whole.Close())
		ok(t, slice.Close())
		same(t, k.name+": after the buffer", sub, want[45:55])
		ok(t, p.client.Read(limited(t), theirs.Range(50, 10), remote))
		same(t, k.name+": read after the buffer", theirs, append(append([]byte("0123456789"), make([]byte, 40)...), append([]byte("0123456789"), make([]byte, 40)...)...))

		if _, err := fixed.WriteAt([]byte("1"), 0); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: written to a slice that does not change: %v", k.name, err)
		}
		if err := p.server.Export("fixed "+k.name, fixed.All(), gpurdma.ReadWrite); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: exported for writing: %v", k.name, err)
		}
		r := p.export(fixed.All(), gpurdma.ReadOnly)
		ok(t, p.client.Read(limited(t), theirs.Range(0, 20), r))
		ok(t, p.client.Export("target "+k.name, theirs.All(), all))
		back := must(p.server.Import(limited(t), "target "+k.name))(t)
		if err := p.server.Read(limited(t), fixed.All(), back.Range(0, 20)); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: read into a slice that does not change: %v", k.name, err)
		}
		ok(t, p.server.Write(limited(t), back.Range(0, 20), fixed.All()))
		again := must(fixed.Slice(0, 4))(t)
		if _, err := again.WriteAt([]byte("1"), 0); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: written to a slice of one that does not change: %v", k.name, err)
		}
	}
}

// DirectOnly refuses memory that would be staged.
func testDirectOnly(t *testing.T, s *setting) {
	f := s.fabric(t)
	for _, k := range s.kinds {
		if len(k.opts) > 0 || k.spec == "host" {
			continue
		}
		b, err := f.Alloc(limited(t), k.spec, 8, gpurdma.DirectOnly())
		if (err != nil) != k.staged {
			t.Errorf("%s: %v", k.name, err)
		}
		if err == nil {
			ok(t, b.Close())
		}
		b = must(f.Alloc(limited(t), k.spec, 8, gpurdma.StagedOnly()))(t)
		if x := b.Path(); !x.Staged || k.staged == (x.Reason == nil) && !k.staged {
			t.Errorf("%s: StagedOnly: %v", k.name, x)
		}
		ok(t, b.Close())
		if k.staged {
			b := k.alloc(t, f, 8)
			if x := b.Path(); x.Reason == nil {
				t.Errorf("%s: staged without a reason: %v", k.name, x)
			}
			ok(t, b.Close())
		}
		strict := must(f.Alloc(limited(t), k.spec, 8, gpurdma.StrictOrdering()))(t)
		ok(t, strict.Close())
	}
}

// Memory of another fabric is refused.
func testOtherFabric(t *testing.T, s *setting) {
	p := s.pair(t)
	mine, theirs, remote := p.both(8)
	for what, err := range map[string]error{
		"write":  p.client.Write(limited(t), remote, theirs.All()),
		"read":   p.client.Read(limited(t), theirs.All(), remote),
		"export": p.client.Export("theirs", theirs.All(), all),
		"share":  second(p.client.Share(theirs.All(), all)),
		"view":   gpurdma.View(gpurdma.SG(gpurdma.Extent{Len: 8}, gpurdma.Extent{Source: 1, Len: 8}), mine, theirs).Err(),
	} {
		if err == nil {
			t.Errorf("%s with memory of another fabric", what)
		}
	}
	p.alive()
}
