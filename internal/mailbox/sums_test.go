// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/verify"
)

type bytesOf byte

func (b bytesOf) Each(_, n int64, f func([]byte)) error { f(make([]byte, n)); return nil }

// A note arrives without its sums, which are beside it, also when it was taken back and sent again. One
// that leaves no room for them is refused.
func TestSums(t *testing.T) {
	size := Size{4, 600}
	a, b := &side{Box: opened(t, size, size)}, &side{Box: opened(t, size, size)}
	trailer, err := verify.Make(verify.All, "write", []verify.Piece{{Memory: 9, Len: 100, Size: 100}}, 100, bytesOf(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		l, err := a.Summed("write", make([]byte, 600-SumsSize))
		if err != nil {
			t.Fatal(err)
		}
		if !l.Unstamped() || l.Own() {
			t.Error("it has a slot, or is the connection's own")
		}
		l.AddSums(trailer)
		a.post(l)
		if again {
			relink(t, a, b)
		}
		a.deliver(t, b)
		m, taken, ok := b.Take(Note, false)
		if !ok || len(m.Body) != 600-SumsSize || m.Sums == nil || m.Sums.Total != 100 || m.Sums.Pieces[0].Memory != 9 {
			t.Fatalf("%v: %+v", ok, m)
		}
		taken()
	}
	if _, err := a.Summed("write", make([]byte, 601-SumsSize)); !errors.Is(err, failure.ErrLimit) {
		t.Error(err)
	}
	l, err := a.Letter("write", Note, make([]byte, 600))
	if err != nil {
		t.Fatal(err)
	}
	a.post(l)
	a.deliver(t, b)
	if m, _, ok := b.Take(Note, false); !ok || len(m.Body) != 600 || m.Sums != nil {
		t.Errorf("%v: %+v", ok, m)
	}
}
