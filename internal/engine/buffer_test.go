// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

func TestSlices(t *testing.T) { testSlices(t, inMemory(t)) }

func testSlices(t *testing.T, s setting) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			n := s.open(t, NICOptions{})
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
				if x, err := sl.Slice(r[0], r[1]); !errors.Is(err, dmabuf.ErrRange) || x != nil {
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
			if n, err := sl.WriteAt(make([]byte, 60), 10); n != 0 || !errors.Is(err, dmabuf.ErrRange) {
				t.Errorf("write past the end: %d, %v", n, err)
			}
			if err := b.Close(); !errors.Is(err, dmabuf.ErrInUse) {
				t.Errorf("close with slices: %v", err)
			}
			for _, x := range []*Buffer{ro, again, sl} {
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
	n := s.open(t, NICOptions{})
	b := must(n.AllocHost(100))(t)
	if err := b.Retain(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); !errors.Is(err, dmabuf.ErrInUse) {
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
		"WriteAt": second(b.WriteAt([]byte{1}, 0)), "NewRegion": second(NewRegion(b)),
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
	if err := n.Close(); !errors.Is(err, dmabuf.ErrInUse) {
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
	n := s.open(t, NICOptions{MaxPinned: 1000})
	a := must(n.AllocHost(600))(t)
	if _, err := n.AllocHost(401); !errors.Is(err, dmabuf.ErrLimit) {
		t.Errorf("more than allowed: %v", err)
	}
	src := &memSource{mem: make([]byte, 401)}
	_, err := n.Register(src, BufferOptions{})
	var reg *ibvfd.RegError
	if !errors.Is(err, dmabuf.ErrLimit) || !errors.As(err, &reg) {
		t.Errorf("staging more than allowed: %v, want the limit, and why it was to be staged", err)
	}
	b := must(n.AllocHost(400))(t)
	closing(t, b)
	closing(t, a)
}

func TestPolicies(t *testing.T) {
	s := inMemory(t)
	n := s.open(t, NICOptions{})
	direct, other := &memSource{mem: make([]byte, 64), direct: true}, &memSource{mem: make([]byte, 64)}
	open := func(m *memSource, p Policy) *Buffer {
		b := must(n.Register(m, BufferOptions{Policy: p}))(t)
		closing(t, b)
		return b
	}
	if p := open(direct, PreferDirect).Path(); p.Direct != Registered || p.Reason != nil || p.Route == "" {
		t.Errorf("%+v", p)
	}
	b := open(direct, StagedOnly)
	if p := b.Path(); p.Direct != Staged || p.Reason != nil || b.GPUDirect() {
		t.Errorf("%+v", p)
	}
	if !open(direct, DirectOnly).GPUDirect() {
		t.Error("GPU memory that is registered is not GPUDirect")
	}
	var reg *ibvfd.RegError
	if p := open(other, PreferDirect).Path(); p.Direct != Staged || !errors.As(p.Reason, &reg) {
		t.Errorf("%+v", p)
	}
	if _, err := n.Register(other, BufferOptions{Policy: DirectOnly}); !errors.As(err, &reg) {
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
		b := must(n.Register(src, BufferOptions{Policy: StagedOnly}))(t)
		closing(t, b)
		at, ok := b.GPU()
		if want, _ := src.PCI(); ok != gpu || gpu && at != want || !gpu && at != (pciaddr.Addr{}) {
			t.Errorf("memory of kind %v: GPU %v, %v", kind, at, ok)
		}
	}
	for _, size := range []int64{0, -1} {
		if _, err := n.AllocHost(size); !errors.Is(err, dmabuf.ErrRange) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := n.Register(&memSource{}, BufferOptions{}); !errors.Is(err, dmabuf.ErrRange) {
		t.Errorf("no bytes: %v", err)
	}
}

// kindSource is a source that knows which memory it is.
type kindSource struct {
	memSource
	kind gpualloc.Kind
}

func (s *kindSource) Kind() gpualloc.Kind { return s.kind }

// Changes of either side to staged memory reach the other side, byte by byte; unchanged bytes
// are not written.
func TestStagedMemoryAgrees(t *testing.T) {
	r := testenv.Seeded(t)
	n := inMemory(t).open(t, NICOptions{})
	const size = 3*syncChunk + 77
	src := &memSource{mem: make([]byte, size)}
	b := must(n.Register(src, BufferOptions{Policy: StagedOnly}))(t)
	closing(t, b)
	want := random(t, r, b, size)
	staging := b.core.hostMem.Bytes()
	for range 30 {
		for range r.IntN(2000) {
			i, v := r.IntN(size), byte(r.Uint32())
			want[i] = v
			if i%2 == 0 { // the GPU's bytes
				src.mem[i] = v
			} else { // the peer's
				staging[i] = v
			}
		}
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		if string(src.mem) != string(want) || string(staging) != string(want) {
			t.Fatal("they do not agree")
		}
	}
	before := n.Stats().Staged
	if err := b.Sync(); err != nil || n.Stats().Staged != before {
		t.Errorf("copied %d bytes that nobody changed, %v", n.Stats().Staged-before, err)
	}
}

// If a GPU and a peer write the same byte between two syncs, the peer's write wins, unless it
// equals the byte at the last sync. A sync between the two writes keeps both.
func TestStagedMemoryInConflict(t *testing.T) {
	n := inMemory(t).open(t, NICOptions{})
	src := &memSource{mem: make([]byte, 3)}
	b := must(n.Register(src, BufferOptions{Policy: StagedOnly}))(t)
	closing(t, b)
	staging := b.core.hostMem.Bytes()
	sync := func(what string, want byte) {
		t.Helper()
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		if all := string([]byte{0, want, 0}); string(src.mem) != all || string(staging) != all {
			t.Errorf("%s: the source has %v, the staging buffer %v, want %d", what, src.mem, staging, want)
		}
	}
	staging[1] = 1
	sync("the peer sets it", 1)
	src.mem[1], staging[1] = 2, 3
	sync("both change it", 3)
	src.mem[1], staging[1] = 0, 3
	sync("the GPU clears it, and the peer writes the same again", 0)
	staging[1] = 3
	sync("the peer sets it", 3)
	src.mem[1] = 0
	sync("the GPU clears it", 0)
	staging[1] = 3
	sync("the peer sets it after that", 3)
}

// proofs is a prover with prepared answers, one for each MR. It records the keys that it gets.
type proofs struct {
	answers []placement.Placement
	asked   []placement.Key
}

func (p *proofs) Prove(_ context.Context, k placement.Key) (placement.Placement, error) {
	p.asked = append(p.asked, k)
	if len(p.asked) > len(p.answers) {
		return placement.Placement{}, errors.New("asked once too often")
	}
	return p.answers[len(p.asked)-1], nil
}

// ofTwo returns a Buffer of two dma-bufs, like GPU memory in segments: its MRs have different
// keys and inodes.
func ofTwo(t *testing.T) *Buffer {
	n := inMemory(t).open(t, NICOptions{})
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	closing(t, b)
	first := b.core.reg.Local[0]
	if b.core.reg.Remote[0].Key == first.Key {
		t.Fatal("the fabric's lkeys are its rkeys: what is asked by the wrong one would be found")
	}
	b.core.reg.Local = append(b.core.reg.Local, Piece{Addr: first.Addr + 1<<40, Length: 32, Key: 0x501})
	b.core.reg.Remote = append(b.core.reg.Remote, Piece{Addr: first.Addr + 1<<40, Length: 32, Key: 0x502})
	b.core.inodes = []uint64{70, 80}
	return b
}

// Prove asks the prover for each MR by device, keys and inode only: the number of a process
// differs outside of its container.
func TestProveAsks(t *testing.T) {
	b := ofTwo(t)
	direct := placement.Placement{Memory: placement.PeerToPeer, Route: placement.BelowSwitch}
	want := []placement.Key{
		{Device: "fake0", LKey: b.core.reg.Local[0].Key, RKey: b.core.reg.Remote[0].Key, Inode: 70},
		{Device: "fake0", LKey: 0x501, RKey: 0x502, Inode: 80},
	}
	for range 2 {
		p := &proofs{answers: []placement.Placement{direct, direct}}
		if _, err := b.Prove(t.Context(), p); err != nil || !slices.Equal(p.asked, want) {
			t.Errorf("asked for %+v, %v, want %+v", p.asked, err, want)
		}
		// Now it is not known which MR belongs to which dma-buf.
		b.core.inodes = b.core.inodes[:1]
		want[0].Inode, want[1].Inode = 0, 0
	}
}

// A Buffer is Proven only if the prover says so for every MR. Path keeps the answer for the
// first MR that is not.
func TestProve(t *testing.T) {
	b := ofTwo(t)
	direct := func(device string) placement.Placement {
		return placement.Placement{Memory: placement.PeerToPeer, Route: placement.BelowSwitch,
			Places: []placement.Place{{Kind: placement.KindBAR, Device: device}}}
	}
	moved := placement.Placement{Memory: placement.SystemMemory}
	unseen := placement.Placement{Reason: "not seen"}
	for _, c := range []struct {
		name    string
		answers []placement.Placement
		want    Direct
		kept    int // index of the answer that Path keeps
	}{
		{"both", []placement.Placement{direct("a"), direct("b")}, Proven, 1},
		{"not the second", []placement.Placement{direct("a"), moved}, Registered, 1},
		{"not the first", []placement.Placement{moved, direct("b")}, Registered, 0},
		{"both again", []placement.Placement{direct("a"), direct("b")}, Proven, 1},
		{"neither", []placement.Placement{unseen, moved}, Registered, 0},
		{"no route", []placement.Placement{{Memory: placement.PeerToPeer}, direct("b")}, Registered, 0},
	} {
		p, err := b.Prove(t.Context(), &proofs{answers: c.answers})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		path := b.Path()
		if want := c.answers[c.kept]; path.Direct != c.want || !reflect.DeepEqual(p, want) || !reflect.DeepEqual(path.Proof, want) {
			t.Errorf("%s: %v, answered %v, kept %v, want %v of %v", c.name, path.Direct, p, path.Proof, c.want, want)
		}
		if !b.GPUDirect() {
			t.Errorf("%s: a GPU's memory that is registered is not direct", c.name)
		}
	}
	// After a prover's error Path does not change.
	before := b.Path()
	if _, err := b.Prove(t.Context(), &proofs{answers: []placement.Placement{direct("a")}}); err == nil || !reflect.DeepEqual(b.Path(), before) {
		t.Errorf("after a prover that failed: %v, %v, was %v", err, b.Path(), before)
	}

	staged := must(b.core.nic.Register(&memSource{mem: make([]byte, 64)}, BufferOptions{}))(t)
	closing(t, staged)
	p := &proofs{answers: []placement.Placement{direct("a")}}
	if _, err := staged.Prove(t.Context(), p); !errors.Is(err, errStaged) || len(p.asked) != 0 || staged.Path().Direct != Staged || staged.GPUDirect() {
		t.Errorf("a staged buffer: %v, asked for %v, %v", err, p.asked, staged.Path())
	}
}

func TestPathString(t *testing.T) {
	for want, p := range map[string]Path{
		"staged":                           {},
		"staged: the buffer is staged":     {Reason: errStaged},
		"registered, by ibv_reg_dmabuf_mr": {Direct: Registered, Route: ibvfd.RouteProvider},
		"registered, by REG_DMABUF_MR ioctl; unknown: not seen": {Direct: Registered, Route: ibvfd.RouteIoctl,
			Proof: placement.Placement{Reason: "not seen"}},
		"proven, by ibv_reg_dmabuf_mr; peer-to-peer: 0000:01:00.0 BAR 2": {Direct: Proven, Route: ibvfd.RouteProvider,
			Proof: placement.Placement{Memory: placement.PeerToPeer, Places: []placement.Place{
				{Kind: placement.KindBAR, Device: "0000:01:00.0", BAR: 2}}}},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
