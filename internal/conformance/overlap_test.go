// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// testOverlaps writes over one another.
func testOverlaps(t *testing.T, s *setting) {
	size, most, rounds := int64(2<<20), int64(600<<10), 12
	if s.net == nil { // a software NIC of an emulated machine
		size, most, rounds = 1<<20, 300<<10, 3
	}
	p := s.pair(t)
	p.overlaps(size, most, nil, func(round int) bool { return round < rounds })
}

// overlaps posts random writes, small ones and some that are large enough to be cut, which overlap
// one another, notifications and messages, in rounds as long as more returns true. A notification
// and a message come after the bytes of all writes before them, in order, and the bytes are as if the
// writes had been carried out one after the other. start is called when the memory is exported.
func (p *pair) overlaps(size, most int64, start func(), more func(round int) bool) {
	t := p.t
	r := testenv.Seeded(t)
	mine, theirs, remote := p.both(size)
	source := fill(t, r, mine)
	model := make([]byte, size)
	if start != nil {
		start()
	}
	type write struct {
		to, from, n  int64
		note, letter bool
	}
	for round := 0; more(round); round++ {
		b := p.client.Batch()
		area := 1 + r.Int64N(size) // of the round: a small one makes many overlaps
		var writes []write
		for range 1 + r.IntN(24) {
			n := 1 + r.Int64N(min(area, 4<<10))
			if r.IntN(4) == 0 {
				n = 1 + r.Int64N(min(area, most))
			}
			x := write{to: r.Int64N(area - n + 1), from: r.Int64N(size - n + 1), n: n}
			var opts []gpurdma.Option
			switch r.IntN(10) {
			case 0:
				opts = append(opts, gpurdma.Delivered())
			case 1:
				opts = append(opts, gpurdma.Fence())
			case 2, 3:
				x.note = true
				opts = append(opts, gpurdma.Notify(fmt.Append(nil, len(writes))))
			case 4:
				b.Add(gpurdma.Op{Kind: gpurdma.OpSend, Inline: fmt.Append(nil, len(writes))})
				writes = append(writes, write{letter: true})
				continue
			}
			b.Write(remote.Range(x.to, n), mine.Range(x.from, n), opts...)
			writes = append(writes, x)
		}
		b.Add(gpurdma.Op{Kind: gpurdma.OpWrite, Notify: true, Note: fmt.Append(nil, len(writes))})
		writes = append(writes, write{note: true})
		ended := make(chan error, 1)
		go func() { ended <- b.Do(limited(t)) }()
		for i, x := range writes {
			copy(model[x.to:x.to+x.n], source[x.from:x.from+x.n])
			receive := p.server.ReceiveNotification
			switch {
			case x.letter:
				receive = p.server.Receive
			case !x.note:
				continue
			}
			if note := must(receive(limited(t)))(t); string(note) != fmt.Sprint(i) {
				t.Fatalf("round %d: %s, want %d; the batch: %v", round, note, i, <-ended)
			}
			got, want := content(t, theirs), slices.Clone(model)
			for _, later := range writes[i+1:] { // may have been carried out, or in part
				copy(want[later.to:later.to+later.n], got[later.to:])
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("round %d: bytes of writes before notification %d are missing", round, i)
			}
		}
		ok(t, <-ended)
	}
	back := host(t, p.a, size)
	ok(t, p.client.Read(limited(t), back.All(), remote))
	same(t, "read back", back, model)
}
