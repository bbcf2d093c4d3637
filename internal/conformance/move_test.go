// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/failure"
)

// Memory that peers use goes from one source to another while they read and write: no operation fails, the
// keys stay, and afterwards all bytes go to the new source, over all rails. The old one is let go of.
func TestMoveUnderOperations(t *testing.T) {
	const size = 1 << 20
	s, p := overRails(t, fabrictest.Options{KeysStay: true}, gpurdma.Config{})
	var sources []*fabrictest.Memory
	for range 3 {
		sources = append(sources, must(fabrictest.NewMemory(size))(t))
	}
	theirs := must(p.b.Register(limited(t), sources[0]))(t)
	remote, mine := p.export(theirs.All(), all), host(t, p.a, size)
	read := host(t, p.a, size)
	shared := must(p.server.Share(theirs.Range(0, 4096), gpurdma.ReadOnly))(t)
	var kept gpurdma.Remote
	ok(t, kept.UnmarshalBinary(must(shared.MarshalBinary())(t)))
	p.overAll(remote, mine.All(), len(s.nics))

	stop := make(chan struct{})
	var peer sync.WaitGroup
	peer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			ok(t, p.client.Read(limited(t), read.All(), remote))
			ok(t, p.client.Write(limited(t), remote.Range(int64(i%16)*4096, 4096), mine.Range(0, 4096)))
		}
	})
	for i := 1; i <= 50; i++ {
		to, from := sources[i%len(sources)], sources[(i-1)%len(sources)]
		ok(t, theirs.Move(limited(t), to))
		if err := from.Close(); err != nil {
			t.Fatalf("the old memory after move %d: %v", i, err)
		}
		sources[(i-1)%len(sources)] = must(fabrictest.NewMemory(size))(t)
	}
	close(stop)
	peer.Wait()

	now := sources[50%len(sources)]
	before := must(fabrictest.NewMemory(size))(t)
	ok(t, theirs.Move(limited(t), before))
	ok(t, theirs.Move(limited(t), now))
	want := bytes.Repeat([]byte("moved"), size/5+1)[:size]
	put(t, mine, want)
	ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
	same(t, "the Buffer", theirs, want)
	got := make([]byte, size)
	if must(now.ReadAt(got, 0))(t); !bytes.Equal(got, want) {
		t.Error("the new memory does not have what was written")
	}
	if must(before.ReadAt(got, 0))(t); !bytes.Equal(got, make([]byte, size)) {
		t.Error("the memory of before has bytes that came later")
	}
	ok(t, p.client.Read(limited(t), read.Range(0, 4096), kept))
	same(t, "what a descriptor reads that was made before", must(read.Slice(0, 4096))(t), want[:4096])
	if n := p.client.Stats().Repeats; n != 0 {
		t.Errorf("%d operations were repeated", n)
	}
	ok(t, p.client.Close())
	gone(t, p.server)
	ok(t, theirs.Close())
	ok(t, now.Close())
	ok(t, before.Close())
}

// A move that one NIC cannot make is made by none, and the memory goes on being used.
func TestMoveAllOrNothing(t *testing.T) {
	const size = 4096
	s, p := overRails(t, fabrictest.Options{KeysStay: true}, gpurdma.Config{})
	old := must(fabrictest.NewMemory(size))(t)
	theirs := must(p.b.Register(limited(t), old))(t)
	remote, mine := p.export(theirs.All(), all), host(t, p.a, size)
	slice := must(theirs.Slice(8, 8))(t)
	works := func(want string) {
		t.Helper()
		put(t, mine, append([]byte(want), make([]byte, size-len(want))...))
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
		got := make([]byte, 8)
		if must(old.ReadAt(got, 0))(t); string(got) != want {
			t.Errorf("the memory has %q, want %q", got, want)
		}
	}
	held := func(m *fabrictest.Memory) {
		t.Helper()
		if err := m.Close(); err != nil {
			t.Errorf("after a move that failed: %v", err)
		}
	}
	near := must(fabrictest.NewMemoryOf(size, s.nics[0], s.nics[1]))(t)
	if err := theirs.Move(limited(t), near); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("to memory that a NIC does not reach: %v", err)
	}
	works("1st try!")
	held(near)
	small := must(fabrictest.NewMemory(size / 2))(t)
	if err := theirs.Move(limited(t), small); !errors.Is(err, failure.ErrRange) {
		t.Errorf("to memory that is too small: %v", err)
	}
	held(small)
	if err := theirs.Move(limited(t), nil); err == nil {
		t.Error("to nothing")
	}
	works("2nd try!")
	next := must(fabrictest.NewMemory(2 * size))(t)
	ok(t, slice.Move(limited(t), next)) // all of the memory goes along
	held(old)
	old = next
	works("3rd try!")
	if n := theirs.Size(); n != size {
		t.Errorf("the Buffer has %d bytes", n)
	}
	ok(t, p.client.Close())
	gone(t, p.server)
	ok(t, errors.Join(slice.Close(), theirs.Close()))
	if err := theirs.Move(limited(t), next); !errors.Is(err, gpurdma.ErrClosed) {
		t.Errorf("a Buffer that is closed: %v", err)
	}
	held(next)
}

// Where keys cannot stay, and for memory that has none of its own, Move says so, and nothing changes.
func TestMoveUnsupported(t *testing.T) {
	const size = 4096
	s := inMemory(t, fabrictest.Options{})
	p := s.carelessPair(t, gpurdma.Config{})
	to := must(fabrictest.NewMemory(size))(t)
	staged := must(fabrictest.NewStagedMemory(size))(t)
	direct := must(fabrictest.NewMemory(size))(t)
	for name, b := range map[string]*gpurdma.Buffer{
		"a kernel of today": must(p.b.Register(limited(t), direct))(t),
		"staged memory":     must(p.b.Register(limited(t), staged))(t),
		"host memory":       host(t, p.b, size),
	} {
		if err := b.Move(limited(t), to); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
		remote, mine := p.export(b.All(), all), host(t, p.a, size)
		put(t, mine, bytes.Repeat([]byte(name[:8]), size/8))
		ok(t, p.client.Write(limited(t), remote, mine.All(), gpurdma.Delivered()))
		same(t, name, b, content(t, mine))
	}
	ok(t, to.Close())
}
