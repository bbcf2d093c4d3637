// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// cuts are the ways to end the link of a connection. Each returns what mends it.
var cuts = map[string]func(w *world) (mend func()){
	"packets": func(w *world) func() {
		w.net.Cut(w.da, w.db)
		return func() { w.net.Mend(w.da, w.db) }
	},
	"port": func(w *world) func() {
		w.db.SetPort(false)
		return func() { w.db.SetPort(true) }
	},
	"exchange": func(w *world) func() {
		w.net.CutExchanges(memstream.Reset)
		return w.net.MendExchanges
	},
	"all, in silence": func(w *world) func() {
		w.net.Cut(w.da, w.db)
		w.net.CutExchanges(memstream.Silent)
		return func() {
			w.net.Mend(w.da, w.db)
			w.net.MendExchanges()
		}
	},
}

// outliving is a world whose connection outlives its links.
func outliving(t *testing.T) *world {
	t.Helper()
	return newWorld(t, Config{Outlive: true})
}

// lose waits until the connection has no link.
func (w *world) lose(c *Conn) {
	w.t.Helper()
	for ctx := limited(w.t); c.Rails()[0].Up; time.Sleep(100 * time.Microsecond) {
		if ctx.Err() != nil {
			w.t.Fatal("the link is not lost")
		}
	}
}

// ended returns the error of a transfer.
func ended(t *testing.T, x *Transfer) error {
	t.Helper()
	select {
	case <-x.Done():
	case <-limited(t).Done():
		t.Fatal("it does not end")
	}
	return x.Err()
}

// A connection goes on after each kind of cut, with the operations that were under way.
func TestOutliveCuts(t *testing.T) {
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			w := outliving(t)
			const size = 1 << 16
			theirs, remote := w.lend("m", size)
			mine := w.host(w.a, size)
			for round := range 3 {
				mend := cut(w)
				want := bytes.Repeat([]byte{byte(round + 1)}, size)
				w.put(mine, want)
				list := []*Transfer{must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote.All(), Notify: true, Note: []byte{byte(round)}}))(t)}
				for i := range 10 {
					list = append(list, must(w.ca.Start(limited(t), Op{Kind: OpSend, Inline: fmt.Append(nil, round, i)}))(t))
				}
				w.lose(w.ca)
				mend()
				for i, x := range list {
					if err := ended(t, x); err != nil {
						t.Fatalf("round %d: operation %d: %v", round, i, err)
					}
				}
				if note := must(w.cb.ReceiveNotification(limited(t)))(t); note[0] != byte(round) {
					t.Errorf("round %d: note %d", round, note)
				}
				if !bytes.Equal(w.get(theirs, size), want) {
					t.Errorf("round %d: other bytes", round)
				}
				for i := range 10 {
					if p := must(w.cb.Receive(limited(t)))(t); string(p) != fmt.Sprint(round, i) {
						t.Fatalf("round %d: message %d is %q", round, i, p)
					}
				}
				for _, c := range []*Conn{w.ca, w.cb} { // operations may end before the link is lost
					for ctx := limited(t); c.Rails()[0].Lost <= round; time.Sleep(time.Millisecond) {
						if ctx.Err() != nil {
							t.Fatalf("round %d: %d links were lost", round, c.Rails()[0].Lost)
						}
					}
				}
			}
			if w.ca.Err() != nil || w.cb.Err() != nil {
				t.Error(w.ca.Err(), w.cb.Err())
			}
		})
	}
}

// Packets of a lost link that are still in the network do not land once an operation has completed.
func TestOutliveLatePackets(t *testing.T) {
	w := outliving(t)
	theirs, remote := w.lend("m", 8)
	for i := range testenv.Soak(20, 1000) {
		w.net.Hold(w.da, w.db, true)
		x := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte("1st try!"), Remote: remote.All()}))(t)
		w.lose(w.ca)
		w.net.Pass(w.da, w.db)
		if err := ended(t, x); err != nil {
			t.Fatal(err)
		}
		w.put(theirs, []byte("newer..."))
		kept, before, _ := w.net.Late()
		w.net.Hold(w.da, w.db, false)
		if _, landed, dropped := w.net.Late(); kept == 0 || landed != before || dropped == 0 {
			t.Fatalf("round %d: %d were kept, %d landed, %d were dropped", i, kept, landed-before, dropped)
		}
		if got := w.get(theirs, 8); string(got) != "newer..." {
			t.Fatalf("round %d: a late packet has landed: %q", i, got)
		}
	}
}

// Messages in both directions arrive once, and in order, however often the link is cut, and
// whatever the receiver has not taken.
func TestOutliveMessages(t *testing.T) {
	w := outliving(t)
	count := testenv.Soak(4000, 400_000)
	var all sync.WaitGroup
	for _, way := range [][2]*Conn{{w.ca, w.cb}, {w.cb, w.ca}} {
		all.Go(func() {
			for i := range count {
				if err := way[0].Send(limited(t), binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
					t.Errorf("message %d: %v", i, err)
					return
				}
			}
		})
		all.Go(func() {
			for i := range count {
				p, err := way[1].Receive(limited(t))
				if err != nil || binary.BigEndian.Uint32(p) != uint32(i) {
					t.Errorf("message %d: %x, %v", i, p, err)
					return
				}
				if i%100 == 0 {
					time.Sleep(time.Millisecond) // the others wait, untaken
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	w.flap(over)
	if n := w.ca.Rails()[0].Lost; n == 0 {
		t.Error("no link was lost")
	} else {
		t.Logf("%d links were lost", n)
	}
}

// flap cuts and mends the link at random until over is closed.
func (w *world) flap(over <-chan struct{}) {
	r := testenv.Seeded(w.t)
	for {
		for _, cut := range cuts {
			mend := cut(w)
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			mend()
			select {
			case <-over:
				return
			case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
			}
		}
	}
}

// Overlapping writes, notes, reads behind a fence, and atomics go through a link that is cut all
// the time: in order, once each, and nothing is carried out again that the peer's program has been
// told of.
func TestOutliveRandom(t *testing.T) {
	w := outliving(t)
	const size = 256
	theirs, remote := w.lend("m", size+8)
	mine := w.host(w.a, size)
	model := make([]byte, size)
	r := testenv.Seeded(t)
	over := make(chan struct{})
	var flapping sync.WaitGroup
	flapping.Go(func() { w.flap(over) })
	defer flapping.Wait()
	defer close(over)
	sure, unsure := uint64(0), uint64(0)
	lost := func() int { return w.ca.Rails()[0].Lost }
	for round := 0; lost() < testenv.Soak(20, 1000); round++ {
		var list []*Transfer
		start := func(o Op) {
			list = append(list, must(w.ca.Start(limited(t), o))(t))
		}
		var adds []*Transfer
		for range 1 + r.IntN(20) {
			off := r.IntN(size - 32)
			p := bytes.Repeat([]byte{byte(r.IntN(256))}, 1+r.IntN(32))
			copy(model[off:], p)
			start(Op{Kind: OpWrite, Inline: p, Remote: remote.Range(int64(off), int64(len(p)))})
			if r.IntN(5) == 0 {
				start(Op{Kind: OpFetchAdd, Remote: remote.Range(size, 8), Add: 1})
				adds = append(adds, list[len(list)-1])
				list = list[:len(list)-1]
			}
		}
		start(Op{Kind: OpWrite, Notify: true, Note: binary.BigEndian.AppendUint32(nil, uint32(round))})
		start(Op{Kind: OpRead, Local: mine.All(), Remote: remote.Range(0, size), Fence: true})
		note, err := w.cb.ReceiveNotification(limited(t))
		if err != nil || binary.BigEndian.Uint32(note) != uint32(round) {
			t.Fatalf("round %d: note %x, %v", round, note, err)
		}
		if got := w.get(theirs, size); !bytes.Equal(got, model) {
			t.Fatalf("round %d: when the note is there:\n%x, want\n%x", round, got, model)
		}
		// Nothing of before the note may be carried out any more.
		off := r.IntN(size)
		model[off]++
		if _, err := theirs.WriteAt(model[off:off+1], int64(off)); err != nil {
			t.Fatal(err)
		}
		for i, x := range list {
			if err := ended(t, x); err != nil {
				t.Fatalf("round %d: operation %d: %v", round, i, err)
			}
		}
		for _, x := range adds {
			switch err := ended(t, x); {
			case err == nil:
				sure++
			case errors.Is(err, ErrOutcomeUnknown):
				unsure++
			default:
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if got := w.get(theirs, size); !bytes.Equal(got, model) {
			t.Fatalf("round %d: at the end:\n%x, want\n%x", round, got, model)
		}
		sum := binary.NativeEndian.Uint64(w.get(theirs, size+8)[size:])
		if sum < sure || sum > sure+unsure {
			t.Fatalf("round %d: the sum is %d, of %d additions and %d that are not known", round, sum, sure, unsure)
		}
	}
	t.Logf("%d links were lost; %d additions, and %d that are not known", lost(), sure, unsure)
}

// A connection whose link does not come back ends after PeerTimeout, with the reason.
func TestOutliveInVain(t *testing.T) {
	w := newWorld(t, Config{Outlive: true, PeerTimeout: time.Second})
	_, remote := w.lend("m", 8)
	w.net.Cut(w.da, w.db)
	w.net.CutExchanges(memstream.Reset)
	err := w.ca.Write(limited(t), remote, w.host(w.a, 8).All())
	if !errors.Is(err, ErrPeerGone) || !strings.Contains(err.Error(), "1s") || !strings.Contains(err.Error(), "no route to host") {
		t.Error(err)
	}
	for _, c := range []*Conn{w.ca, w.cb} {
		<-c.Done()
		if err := c.Err(); !errors.Is(err, ErrPeerGone) {
			t.Error(err)
		}
	}
}

// A program that has started anew does not know the connections of before.
func TestOutliveRestart(t *testing.T) {
	w := outliving(t)
	_, remote := w.lend("m", 8)
	w.net.CutExchanges(memstream.Reset)
	w.lose(w.ca)
	w.ok(w.ln.Close())
	_ = w.b.Close()
	fresh, _ := w.fabric("nic-b")
	defer fresh.Close()
	_ = must(fresh.Listen("b:1", Config{Outlive: true}))(t)
	w.net.MendExchanges()
	err := w.ca.Write(limited(t), remote, w.host(w.a, 8).All())
	if !errors.Is(err, ErrPeerGone) || !strings.Contains(err.Error(), "started anew") {
		t.Error(err)
	}
}

// If only one side outlives its link, the connection ends with it.
func TestOutliveAlone(t *testing.T) {
	for _, both := range [][2]Config{{{Outlive: true}, {}}, {{}, {Outlive: true}}} {
		w := newWorld(t, Config{})
		_ = must(w.b.Listen("b:2", both[1]))(t)
		c := must(w.a.Dial(limited(t), "b:2", both[0]))(t)
		w.net.CutExchanges(memstream.Reset)
		<-c.Done()
		w.net.MendExchanges()
	}
}

// A connection without a link can be closed at once. Close reports whether the peer may have got
// something.
func TestOutliveClose(t *testing.T) {
	for _, under := range []bool{false, true} {
		w := outliving(t)
		_, remote := w.lend("m", 8)
		mine := w.host(w.a, 8)
		w.net.Cut(w.da, w.db)
		var x *Transfer
		if under {
			x = must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t)
		}
		w.net.CutExchanges(memstream.Reset)
		w.lose(w.ca)
		later := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t)
		if err := w.ca.Close(); under != errors.Is(err, ErrOutcomeUnknown) || !under && err != nil {
			t.Errorf("%v: %v", under, err)
		}
		if err := ended(t, later); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		if x != nil && ended(t, x) == nil {
			t.Error("an operation has succeeded on a link that was cut")
		}
		w.net.MendExchanges()
	}
}

// Memory that was exported stays exported, and what is exported and withdrawn meanwhile is known
// to the peer after it.
func TestOutliveExports(t *testing.T) {
	w := outliving(t)
	_, remote := w.lend("before", 8)
	w.ok(w.cb.Export("withdrawn", w.host(w.b, 8).All(), ReadWrite))
	_ = must(w.ca.Import(limited(t), "withdrawn"))(t)
	mend := cuts["exchange"](w)
	w.lose(w.cb)
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.cb.Export("meanwhile", w.host(w.b, 8).All(), ReadWrite); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		if err := w.cb.Unexport("withdrawn"); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Millisecond)
	mend()
	all.Wait()
	mine := w.host(w.a, 8)
	for _, m := range []Remote{remote, must(w.ca.Import(limited(t), "meanwhile"))(t), must(w.ca.Import(limited(t), "before"))(t)} {
		w.ok(w.ca.Write(limited(t), m, mine.All()))
	}
	ctx, cancel := context.WithTimeout(limited(t), 50*time.Millisecond)
	defer cancel()
	if _, err := w.ca.Import(ctx, "withdrawn"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("memory that was withdrawn is imported: %v", err)
	}
}

// An operation that is withdrawn while there is no link does not go over the next one. One that the
// NIC had before is not carried out again.
func TestOutliveCancel(t *testing.T) {
	w := outliving(t)
	theirs, remote := w.lend("m", 16)
	w.net.Cut(w.da, w.db)
	begun := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte("begun..."), Remote: remote.Range(0, 8)}))(t)
	w.net.CutExchanges(memstream.Reset)
	w.lose(w.ca)
	later := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Inline: []byte("later..."), Remote: remote.Range(8, 8)}))(t)
	if begun.Cancel() {
		t.Error("the NIC had it")
	}
	if !later.Cancel() {
		t.Error("the NIC had none of it")
	}
	w.net.Mend(w.da, w.db)
	w.net.MendExchanges()
	for _, x := range []*Transfer{begun, later} {
		select {
		case <-x.Released():
		case <-limited(t).Done():
			t.Fatal("its memory is not free")
		}
		if err := x.Err(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	w.ok(w.ca.Send(limited(t), nil))
	_ = must(w.cb.Receive(limited(t)))(t)
	if got := w.get(theirs, 16); !bytes.Equal(got[8:], make([]byte, 8)) { // the others may have landed before
		t.Errorf("%q", got)
	}
}

// A caller that does not know the connection's name, or has another certificate, gets no link of
// it, and the connection goes on.
func TestOutliveStranger(t *testing.T) {
	w := outliving(t)
	_, remote := w.lend("m", 8)
	w.net.CutExchanges(memstream.Reset)
	w.lose(w.ca)
	other, _ := w.fabric("nic-c")
	defer other.Close()
	w.net.MendExchanges()
	c := must(other.Dial(limited(t), "b:1", Config{Outlive: true}))(t)
	if s := must(w.ln.Accept(limited(t)))(t); s == w.cb {
		t.Error("the stranger has the connection")
	}
	if _, err := c.Import(soon(t), "m"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stranger imports memory: %v", err)
	}
	w.ok(w.ca.Write(limited(t), remote, w.host(w.a, 8).All()))
}

// soon returns a context that ends after a time that nothing should need.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A link is another one only when packets pass. If none do, the connection ends after PeerTimeout,
// although the hosts talk with each other; the error of a call whose context ends before says why it
// has waited.
func TestOutliveWithoutPackets(t *testing.T) {
	w := newWorld(t, Config{Outlive: true, PeerTimeout: 2 * time.Second})
	_, remote := w.lend("m", 8)
	w.net.Cut(w.da, w.db)
	ctx, cancel := context.WithTimeout(limited(t), time.Second)
	defer cancel()
	mine := w.host(w.a, 8)
	x := must(w.ca.Start(limited(t), Op{Kind: OpWrite, Local: mine.All(), Remote: remote}))(t)
	y := must(w.ca.Start(ctx, Op{Kind: OpSend, Inline: []byte("late")}))(t) // its end is told with the connection's mutex locked
	if err := w.ca.Write(ctx, remote, mine.All()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the link is lost") {
		t.Error(err)
	}
	if err := ended(t, y); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := ended(t, x); !errors.Is(err, ErrPeerGone) || !strings.Contains(err.Error(), "try the link") {
		t.Error(err)
	}
	if n := w.ca.Rails()[0].Lost; n != 0 {
		t.Errorf("%d links were replaced", n)
	}
}
