// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
)

// Changes of either side to staged memory reach the other side, byte by byte; unchanged bytes
// are not written.
func TestStagedMemoryAgrees(t *testing.T) {
	r := testenv.Seeded(t)
	n := openNIC(t)
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
	n := openNIC(t)
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
	n := openNIC(t)
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	closing(t, b)
	first := b.core.reg.Local[0]
	if b.core.reg.Remote[0].Key == first.Key {
		t.Fatal("the fabric's lkeys are its rkeys: what is asked by the wrong one would be found")
	}
	b.core.reg.Local = append(b.core.reg.Local, lower.Piece{Addr: first.Addr + 1<<40, Length: 32, Key: 0x501})
	b.core.reg.Remote = append(b.core.reg.Remote, lower.Piece{Addr: first.Addr + 1<<40, Length: 32, Key: 0x502})
	b.core.at.Load().inodes = []uint64{70, 80}
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
		b.core.at.Load().inodes = []uint64{70}
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
	if _, err := staged.Prove(t.Context(), p); !errors.Is(err, ErrStaged) || len(p.asked) != 0 || staged.Path().Direct != Staged || staged.GPUDirect() {
		t.Errorf("a staged buffer: %v, asked for %v, %v", err, p.asked, staged.Path())
	}

	host := must(b.core.nic.AllocHost(64))(t)
	closing(t, host)
	if _, err := host.Prove(t.Context(), p); err == nil || errors.Is(err, ErrStaged) || len(p.asked) != 0 {
		t.Errorf("host memory, which is not staged: %v, asked for %v", err, p.asked)
	}
}

func TestPathString(t *testing.T) {
	for want, p := range map[string]Path{
		"staged":                           {},
		"staged: the buffer is staged":     {Reason: ErrStaged},
		"registered, by ibv_reg_dmabuf_mr": {Direct: Registered, Route: ibvfd.RouteProvider},
		"registered, by mlx5dv_reg_dmabuf_mr (the NIC's DMA function moves the bytes)": {Direct: Registered, Route: ibvfd.RouteDataDirect,
			Why: "the NIC's DMA function moves the bytes"},
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
