// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// A message is put where it is wanted; one that comes twice is left out, and a number that is missing
// is counted.
func TestMessageNumbers(t *testing.T) {
	net := memnic.New(memnic.Exchanges())
	nic := memory.NewNIC(net.Device("a0", memnic.Limits{}), memory.NICOptions{})
	buf, err := nic.AllocHost(256 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(buf.Close(), nic.Close()); err != nil {
			t.Error(err)
		}
	}()
	bufs := []*memory.Buffer{buf}
	r := &OverRails{wake: make(chan struct{}, 1)}
	r.in.some = make(chan struct{}, 1)
	letter := func(n uint64, text string) []byte {
		r.number = n - 1
		if _, err := buf.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		p, err := r.letter(All(bufs), 0, int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	m := new(int)
	for _, x := range []struct {
		n     uint64
		fresh bool
	}{{1, true}, {2, true}, {2, false}, {1, false}, {5, true}, {6, true}} {
		p := letter(x.n, "hello")
		fresh, err := r.arrived(p)
		if err != nil || fresh != x.fresh {
			t.Errorf("number %d: fresh %v, %v", x.n, fresh, err)
		}
		if !fresh {
			continue
		}
		if err := r.Receive(Part(bufs, 64, 5), m); err != nil {
			t.Error(err)
		}
		r.put(r.next(), p[numberSize:])
	}
	if r.in.lost != 2 || r.in.twice != 2 || len(r.done) != 4 || r.done[0].Op != operation.Recv || r.done[0].Len != 5 {
		t.Errorf("%d lost, %d twice, %+v", r.in.lost, r.in.twice, r.done)
	}
	if _, err := r.arrived([]byte("short")); !errors.Is(err, talk.ErrMalformed) {
		t.Errorf("a message without a number: %v", err)
	}
	// A message that is longer than what is wanted does not go beyond it.
	if err := r.Receive(Part(bufs, 64, 3), m); err != nil {
		t.Error(err)
	}
	r.put(r.next(), []byte("abcdef"))
	var b [6]byte
	if _, err := buf.ReadAt(b[:], 64); err != nil || string(b[:]) != "abclo\x00" {
		t.Errorf("%q, %v", b, err)
	}
	if last := r.done[len(r.done)-1]; last.Len != 6 {
		t.Errorf("%+v", last)
	}
}
