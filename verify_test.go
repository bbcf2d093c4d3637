// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/verify"
	"github.com/gpurdma/gpurdma/layout"
)

// nothing is a source without bytes.
type nothing struct{}

func (nothing) Each(int64, int64, func([]byte)) error { return nil }

// forge sends a notification with a trailer that no peer makes, after no bytes.
func (w *world) forge(c *Conn, trailer []byte) {
	w.t.Helper()
	one := c.c.First
	o := must(one.NewWork(operation.Write, 0, nil, new(counted)))(w.t)
	w.ok(o.SetNote(one.Works, []byte("forged"), verify.None))
	o.HasSums(trailer)
	w.ok(o.Prepare())
	must(one.Works.Post(o))(w.t)
}

// A peer that names memory which it may not write, or that does not exist, or more bytes than there are,
// learns nothing from that, and the receiver compares nothing. The connection ends, except for memory
// that may have been exported before.
func TestForgedSums(t *testing.T) {
	w := newWorld(t, Config{})
	memory := w.host(w.b, 1000)
	w.ok(w.ca.Close())
	many := must(layout.Interleaved(layout.Extent{Len: 900}, layout.Dim{Count: 1 << 30, Stride: 0}))(t)
	outside := must(layout.SG(layout.Extent{Off: 900, Len: 101}))(t)
	another := must(layout.SG(layout.Extent{Source: 1, Len: 1}))(t)
	for name, x := range map[string]struct {
		access Access
		change func(p *verify.Piece)
		want   error
	}{
		"good":              {WriteOnly, func(*verify.Piece) {}, nil},
		"other memory":      {WriteOnly, func(p *verify.Piece) { p.Memory++ }, ErrUnverified},
		"read only":         {ReadOnly, func(*verify.Piece) {}, ErrMalformed},
		"behind the end":    {WriteOnly, func(p *verify.Piece) { p.Off, p.Len = 990, 11 }, ErrMalformed},
		"far behind":        {WriteOnly, func(p *verify.Piece) { p.Off, p.Len = 1<<62, 1 }, ErrMalformed},
		"a layout":          {WriteOnly, func(p *verify.Piece) { p.Own, p.Layout, p.Len = true, outside, 101 }, ErrMalformed},
		"of another source": {WriteOnly, func(p *verify.Piece) { p.Own, p.Layout, p.Len = true, another, 1 }, ErrMalformed},
		"again and again":   {WriteOnly, func(p *verify.Piece) { p.Own, p.Layout, p.Len = true, many, many.Size() }, ErrMalformed},
		"bytes named twice": {WriteOnly, func(p *verify.Piece) { p.Own, p.Layout, p.Len = true, many, 1000 }, ErrCorrupt},
	} {
		a, b := w.connect(Config{})
		w.ok(b.Export("memory", memory.All(), x.access))
		remote := must(a.Import(limited(t), "memory"))(t)
		p := verify.Piece{Memory: remote.at.First.ID(), Len: 1000, Size: 1 << 62}
		x.change(&p)
		var src verify.Source = nothing{}
		if x.want == nil {
			src = verify.Joined{{Source: zeros{}, Len: 1000}}
		}
		w.forge(a, must(verify.Make(verify.All, "write", []verify.Piece{p}, p.Len, src))(t))
		note, err := b.ReceiveNotification(limited(t))
		if string(note) != "forged" || !errors.Is(err, x.want) {
			t.Errorf("%s: %q, %v", name, note, err)
		}
		if errors.Is(err, ErrMalformed) {
			<-b.Done()
			if !errors.Is(b.Err(), ErrMalformed) {
				t.Errorf("%s: the connection has ended: %v", name, b.Err())
			}
		} else {
			w.ok(b.Send(limited(t), nil))
			must(a.Receive(limited(t)))(t)
		}
		_ = a.Close()
	}
	// A malformed trailer ends the connection before a program takes the note.
	a, b := w.connect(Config{})
	w.forge(a, []byte{1, 2, 3})
	if _, err := b.ReceiveNotification(limited(t)); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	<-b.Done()
}

type zeros struct{}

func (zeros) Each(_, n int64, f func([]byte)) error { f(make([]byte, n)); return nil }

// A notification that was not taken before the end of the connection is compared after it, and memory
// that is closed is no alarm.
func TestVerifiedAfterTheEnd(t *testing.T) {
	w := newWorld(t, Config{Verify: VerifyAll})
	mine := w.host(w.a, 64)
	theirs, remote := w.lend("memory", 64)
	for range 3 {
		w.ok(w.ca.Write(limited(t), remote, mine.All(), Notify([]byte("note"))))
	}
	w.ok(w.ca.Close())
	<-w.cb.Done()
	for i, want := range []error{nil, ErrCorrupt, ErrUnverified} {
		switch i {
		case 1:
			w.put(theirs, []byte{1})
		case 2:
			w.ok(theirs.Close())
		}
		if note, err := w.cb.ReceiveNotification(limited(t)); string(note) != "note" || !errors.Is(err, want) {
			t.Errorf("%d: %q, %v", i, note, err)
		}
	}
	if _, err := w.cb.ReceiveNotification(limited(t)); !errors.Is(err, ErrPeerClosed) {
		t.Error(err)
	}
	if s := w.b.Stats(); s.Checked != 2 || s.Corrupt != 1 {
		t.Errorf("%d blocks were compared, %d differ", s.Checked, s.Corrupt)
	}
}

// A comparison through a layout of the peer's that takes long ends after Config.PeerTimeout.
func TestVerifyEnds(t *testing.T) {
	const size = 64 << 20
	w := newWorld(t, Config{PeerTimeout: 300 * time.Millisecond})
	_, remote := w.lend("memory", size)
	bytewise := must(layout.Interleaved(layout.Extent{Len: 1}, layout.Dim{Count: size, Stride: 0}))(t)
	p := verify.Piece{Memory: remote.at.First.ID(), Own: true, Layout: bytewise, Len: size, Size: size}
	w.forge(w.ca, must(verify.Make(verify.All, "write", []verify.Piece{p}, size, nothing{}))(t))
	if note, err := w.cb.ReceiveNotification(limited(t)); string(note) != "forged" || !errors.Is(err, ErrUnverified) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", note, err)
	}
	w.ok(w.cb.Send(limited(t), nil))
	must(w.ca.Receive(limited(t)))(t)
}
