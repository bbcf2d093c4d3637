// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func TestSlices(t *testing.T) { testSlices(t, inMemory(t)) }

func testSlices(t *testing.T, s setting) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			n := s.open(t, memory.NICOptions{})
			b := k.make(t, n, 100)
			want := random(t, testenv.Seeded(t), b, 100)
			if b.ID() == 0 || b.Size() != 100 || b.ReadOnly() {
				t.Errorf("%v", b)
			}
			sl := must(b.Slice(10, 50))(t)
			ro := must(sl.ReadOnlySlice(5, 20))(t)
			again := must(ro.Slice(1, 2))(t)
			same(t, "slice", sl, want[10:60])
			same(t, "slice of the slice", ro, want[15:35])
			if sl.ID() == b.ID() || !ro.ReadOnly() || !again.ReadOnly() {
				t.Error("a slice is a buffer of its own, and stays read-only")
			}
			if _, err := sl.WriteAt([]byte{1, 2}, 48); err != nil {
				t.Error(err)
			}
			copy(want[58:], []byte{1, 2})
			same(t, "written through the slice", b, want)
			if _, err := ro.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EACCES) {
				t.Errorf("write to read-only: %v", err)
			}
			for _, r := range [][2]int64{{-1, 1}, {0, 51}, {50, 1}, {51, 0}, {0, -1}, {0, 0}, {1 << 62, 1 << 62}} {
				if x, err := sl.Slice(r[0], r[1]); !errors.Is(err, failure.ErrRange) || x != nil {
					t.Errorf("slice %v: %v", r, err)
				}
			}
			if n, err := sl.ReadAt(make([]byte, 60), 10); n != 40 || !errors.Is(err, io.EOF) {
				t.Errorf("read past the end: %d, %v", n, err)
			}
			for _, off := range []int64{50, 51, 1000, 1 << 62} {
				if n, err := sl.ReadAt(make([]byte, 1), off); n != 0 || err != io.EOF {
					t.Errorf("read at %d of 50: %d, %v", off, n, err)
				}
			}
			if n, err := sl.WriteAt(make([]byte, 60), 10); n != 0 || !errors.Is(err, failure.ErrRange) {
				t.Errorf("write past the end: %d, %v", n, err)
			}
			if err := b.Close(); !errors.Is(err, failure.ErrInUse) {
				t.Errorf("close with slices: %v", err)
			}
			for _, x := range []*memory.Buffer{ro, again, sl} {
				if err := x.Release(); err != nil {
					t.Error(err)
				}
				if _, err := x.ReadAt(want[:1], 0); !errors.Is(err, os.ErrClosed) {
					t.Errorf("a closed slice: %v", err)
				}
			}
			same(t, "the buffer is still there", b, want)
		})
	}
}

// The memory lives until its last reference is released, in any order.
func TestReferences(t *testing.T) { testReferences(t, inMemory(t)) }

func testReferences(t *testing.T, s setting) {
	n := s.open(t, memory.NICOptions{})
	b := must(n.AllocHost(100))(t)
	if err := b.Retain(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close while retained: %v", err)
	}
	sl := must(b.Slice(50, 50))(t)
	for range 2 {
		if err := b.Release(); err != nil {
			t.Error(err)
		}
	}
	for name, err := range map[string]error{
		"Release": b.Release(), "Retain": b.Retain(), "Slice": second(b.Slice(0, 1)), "Sync": b.Sync(),
		"WriteAt": second(b.WriteAt([]byte{1}, 0)),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after the last release: %v", name, err)
		}
	}
	if _, err := sl.WriteAt([]byte("kept"), 0); err != nil {
		t.Errorf("the slice keeps the memory: %v", err)
	}
	if n.Stats().Pinned != 100 {
		t.Errorf("%+v", n.Stats())
	}
	if err := n.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("close the NIC: %v", err)
	}
	if err := sl.Close(); err != nil {
		t.Error(err)
	}
	if n.Stats().Pinned != 0 {
		t.Errorf("%+v", n.Stats())
	}
}

func TestPinnedMemoryIsBounded(t *testing.T) { testPinnedMemoryIsBounded(t, inMemory(t)) }

func testPinnedMemoryIsBounded(t *testing.T, s setting) {
	n := s.open(t, memory.NICOptions{MaxPinned: 1000})
	a := must(n.AllocHost(600))(t)
	if _, err := n.AllocHost(401); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("more than allowed: %v", err)
	}
	src := &memSource{mem: make([]byte, 401)}
	_, err := n.Register(src, memory.BufferOptions{})
	var reg *ibvfd.RegError
	if !errors.Is(err, failure.ErrLimit) || !errors.As(err, &reg) {
		t.Errorf("staging more than allowed: %v, want the limit, and why it was to be staged", err)
	}
	b := must(n.AllocHost(400))(t)
	closing(t, b)
	closing(t, a)
}

func TestPolicies(t *testing.T) {
	s := inMemory(t)
	n := s.open(t, memory.NICOptions{})
	direct, other := &memSource{mem: make([]byte, 64), direct: true}, &memSource{mem: make([]byte, 64)}
	open := func(m *memSource, p memory.Policy) *memory.Buffer {
		b := must(n.Register(m, memory.BufferOptions{Policy: p}))(t)
		closing(t, b)
		return b
	}
	if p := open(direct, memory.PreferDirect).Path(); p.Direct != memory.Registered || p.Reason != nil || p.Route == "" {
		t.Errorf("%+v", p)
	}
	b := open(direct, memory.StagedOnly)
	if p := b.Path(); p.Direct != memory.Staged || p.Reason != nil || b.GPUDirect() {
		t.Errorf("%+v", p)
	}
	if !open(direct, memory.DirectOnly).GPUDirect() {
		t.Error("GPU memory that is registered is not GPUDirect")
	}
	var reg *ibvfd.RegError
	if p := open(other, memory.PreferDirect).Path(); p.Direct != memory.Staged || !errors.As(p.Reason, &reg) {
		t.Errorf("%+v", p)
	}
	if _, err := n.Register(other, memory.BufferOptions{Policy: memory.DirectOnly}); !errors.As(err, &reg) {
		t.Errorf("direct only: %v", err)
	}
	h := must(n.AllocHost(8))(t)
	closing(t, h)
	if _, ok := h.GPU(); ok || h.GPUDirect() {
		t.Error("host memory is no GPU's")
	}
	// Memory that a GPU's driver has allocated in the host is not a GPU's either.
	for kind, gpu := range map[gpualloc.Kind]bool{gpualloc.KindSystem: false, gpualloc.KindVRAM: true, gpualloc.KindUnknown: true} {
		src := &kindSource{memSource{mem: make([]byte, 8)}, kind}
		b := must(n.Register(src, memory.BufferOptions{Policy: memory.StagedOnly}))(t)
		closing(t, b)
		at, ok := b.GPU()
		if want, _ := src.PCI(); ok != gpu || gpu && at != want || !gpu && at != (pciaddr.Addr{}) {
			t.Errorf("memory of kind %v: GPU %v, %v", kind, at, ok)
		}
	}
	for _, size := range []int64{0, -1} {
		if _, err := n.AllocHost(size); !errors.Is(err, failure.ErrRange) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := n.Register(&memSource{}, memory.BufferOptions{}); !errors.Is(err, failure.ErrRange) {
		t.Errorf("no bytes: %v", err)
	}
}

// kindSource is a source that knows which memory it is.
type kindSource struct {
	memSource
	kind gpualloc.Kind
}

func (s *kindSource) Kind() gpualloc.Kind { return s.kind }
