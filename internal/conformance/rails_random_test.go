// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// randomly carries out random operations over a connection, until more returns false: writes and reads
// through layouts and without, atomics, messages and notifications. Each of several goroutines has a part
// of the memory, and a counter. All bytes, and the order and the number of all messages are compared. The
// only error that an operation may have is that of an atomic whose outcome is not known.
func (p *pair) randomly(more func() bool) {
	const workers, part = 4, 700 << 10
	t, seed := p.t, testenv.Seeded(p.t).Uint64()
	mine, theirs, remote := p.both(workers * part)
	counters := p.export(host(t, p.b, workers*8).All(), all)
	var senders, receivers sync.WaitGroup
	for i := range workers {
		w := &worker{
			pair: p, r: rand.New(rand.NewPCG(seed, uint64(i))), part: part, model: make([]byte, part),
			mine: mine.Range(int64(i)*part, part), buf: must(mine.Slice(int64(i)*part, part))(t), theirs: remote.Range(int64(i)*part, part),
			counter: counters.Range(int64(i)*8, 8), whole: remote, base: int64(i) * part,
		}
		senders.Go(func() {
			for more() && !t.Failed() {
				w.step()
			}
			w.check(theirs)
			ok(t, w.buf.Close())
		})
	}
	var sent [2]int // messages, notifications
	senders.Go(func() {
		for ; more() && !t.Failed(); time.Sleep(time.Millisecond) {
			body := binary.BigEndian.AppendUint64(nil, uint64(sent[0]))
			if sent[0] > sent[1] {
				body = binary.BigEndian.AppendUint64(nil, uint64(sent[1]))
				ok(t, p.client.Write(limited(t), gpurdma.Remote{}, gpurdma.Span{}, gpurdma.Notify(body)))
				sent[1]++
				continue
			}
			ok(t, p.client.Send(limited(t), body))
			sent[0]++
		}
		ok(t, p.client.Send(limited(t), nil))
		ok(t, p.client.Write(limited(t), gpurdma.Remote{}, gpurdma.Span{}, gpurdma.Notify(nil)))
	})
	for kind, receive := range []func() ([]byte, error){
		func() ([]byte, error) { return p.server.Receive(limited(t)) },
		func() ([]byte, error) { return p.server.ReceiveNotification(limited(t)) },
	} {
		receivers.Go(func() {
			for n := 0; ; n++ {
				body, err := receive()
				if err != nil {
					t.Errorf("message %d of kind %d: %v", n, kind, err)
					return
				}
				if len(body) == 0 {
					if n != sent[kind] {
						t.Errorf("%d messages of kind %d, of %d", n, kind, sent[kind])
					}
					return
				}
				if got := binary.BigEndian.Uint64(body); got != uint64(n) {
					t.Errorf("message %d of kind %d, want %d", got, kind, n)
					return
				}
			}
		})
	}
	senders.Wait()
	receivers.Wait()
	t.Logf("%d messages, %d notifications, %d operations, %d repeats", sent[0], sent[1], p.client.Stats().Done, p.client.Stats().Repeats)
}

// worker carries out operations one after the other, in a part of the memory.
type worker struct {
	*pair
	r          *rand.Rand
	part, base int64
	model      []byte // the bytes of the peer's part
	mine       gpurdma.Span
	buf        *gpurdma.Buffer // the same bytes
	theirs     gpurdma.Remote
	whole      gpurdma.Remote
	counter    gpurdma.Remote
	least      uint64 // value of the counter
	unknown    uint64 // of the additions whose outcome is not known
}

// step carries out one operation.
func (w *worker) step() {
	t, n := w.t, 1+w.r.Int64N(4<<10)
	if w.r.IntN(4) == 0 {
		n = 1 + w.r.Int64N(w.part)
	}
	at, from := w.r.Int64N(w.part-n+1), w.r.Int64N(w.part-n+1)
	switch w.r.IntN(5) {
	case 0:
		source := make([]byte, n)
		for i := range source {
			source[i] = byte(w.r.Uint32())
		}
		must(w.buf.WriteAt(source, from))(t)
		ok(t, w.client.Write(limited(t), w.theirs.Range(at, n), w.mine.Range(from, n)))
		copy(w.model[at:], source)
	case 1:
		ok(t, w.client.Read(limited(t), w.mine.Range(from, n), w.theirs.Range(at, n)))
		w.compare("read", from, w.model[at:at+n])
	case 2: // every other piece of the peer's bytes
		piece := 1 + w.r.Int64N(200)
		count := 1 + w.r.Int64N(min(50, w.part/(2*piece)))
		at = w.r.Int64N(w.part - 2*piece*count + 1)
		l := gpurdma.Interleaved(gpurdma.Extent{Off: w.base + at, Len: piece}, gpurdma.Dim{Count: count, Stride: 2 * piece})
		local := w.mine.Range(0, piece*count)
		if w.r.IntN(2) == 0 {
			source := make([]byte, piece*count)
			must(w.buf.ReadAt(source, 0))(t)
			ok(t, w.client.Write(limited(t), w.whole.View(l), local))
			for i := range count {
				copy(w.model[at+2*piece*i:], source[piece*i:piece*(i+1)])
			}
			return
		}
		ok(t, w.client.Read(limited(t), local, w.whole.View(l)))
		var want []byte
		for i := range count {
			want = append(want, w.model[at+2*piece*i:][:piece]...)
		}
		w.compare("read through a layout", 0, want)
	default:
		add := 1 + w.r.Uint64N(100)
		old, err := w.client.FetchAdd(limited(t), w.counter, add)
		switch {
		case errors.Is(err, gpurdma.ErrOutcomeUnknown):
			w.unknown += add
			return
		case err != nil:
			t.Error(err)
		case old < w.least || old > w.least+w.unknown:
			t.Errorf("the counter was %d, want %d to %d", old, w.least, w.least+w.unknown)
		}
		w.least, w.unknown = old+add, 0
	}
}

// compare compares local bytes.
func (w *worker) compare(what string, off int64, want []byte) {
	got := make([]byte, len(want))
	if must(w.buf.ReadAt(got, off))(w.t); !bytes.Equal(got, want) {
		w.t.Errorf("%s: %d bytes at %d differ", what, len(want), off)
	}
}

// check compares all of the peer's bytes.
func (w *worker) check(theirs *gpurdma.Buffer) {
	got := make([]byte, w.part)
	ok(w.t, w.client.Read(limited(w.t), w.mine, w.theirs)) // all earlier writes are in the memory then
	if must(theirs.ReadAt(got, w.base))(w.t); !bytes.Equal(got, w.model) {
		w.t.Errorf("bytes of the part at %d differ", w.base)
	}
}

// underFlaps carries out random operations over two connections of the pair while rails lose their links,
// a number of times. cut cuts one.
func (p *pair) underFlaps(cfg gpurdma.Config, rails, flaps int, cut func() (mend func())) {
	t := p.t
	p.allUp(rails)
	other := &pair{t: t, a: p.a, b: p.b, ln: p.ln, names: 1000}
	other.client, other.server = other.connect(cfg)
	other.allUp(rails)
	done := make(chan struct{})
	more := func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	var all sync.WaitGroup
	for _, p := range []*pair{p, other} {
		all.Go(func() { p.randomly(more) })
	}
	for i := 0; i < flaps && !t.Failed(); i++ {
		cut()()
	}
	close(done)
	all.Wait()
	for _, p := range []*pair{p, other} {
		p.allUp(rails)
		lost := 0
		for _, r := range p.client.Rails() {
			lost += r.Lost
		}
		if t.Log(fmt.Sprint(lost, " links were lost")); lost == 0 {
			t.Error("no rail has lost its link")
		}
		ok(t, p.client.Close())
		gone(t, p.server)
	}
}

// Rails lose their links under random operations of two connections.
func TestRailsRandom(t *testing.T) {
	cfg := gpurdma.Config{PeerTimeout: 10 * time.Second}
	s, p := overRails(t, fabrictest.Options{HoldWrites: true}, cfg)
	r := testenv.Seeded(t)
	p.underFlaps(cfg, len(s.nics), testenv.Soak(5, 300), func() func() {
		how := s.portDown
		if r.IntN(4) == 0 {
			how = s.cutRail
		}
		mend := how(p, s.nics[r.IntN(len(s.nics))])
		time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
		return func() {
			mend()
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	})
}
