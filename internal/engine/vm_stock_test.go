// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Debian's own rxe registers no dma-bufs: a real refusal. Then a Buffer is staged, Path
// reports the reason and the refusing part, and every byte arrives, copied once; with
// DirectOnly Register returns the refusal, and frees everything.
func TestVMStockRefusedIsStaged(t *testing.T) {
	testenv.VM(t)
	noGrowth(t, testNIC)
	size := int64(3*64<<10 + os.Getpagesize()) // of whole pages: the allocator does not round it up
	w := hostOnly(testNIC).world(t, EndpointOptions{})
	refused := func(what string, err error) {
		t.Helper()
		var reg *ibvfd.RegError
		if !errors.As(err, &reg) {
			t.Fatalf("%s: %v", what, err)
		}
		if reg.Device != testNIC || reg.Cause != fault.CauseNoDriverOp || reg.Errno != unix.EOPNOTSUPP || reg.Latest != fault.StageUverbs || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %+v", what, reg)
		}
	}
	vgem := must(gpualloc.Open("drm:vgem", gpualloc.Env{}))(t)
	closing(t, vgem)
	alloc := func(n *memory.NIC) (*gpualloc.Buffer, *memory.Buffer) {
		t.Helper()
		src := must(vgem.Alloc(t.Context(), size, gpualloc.Options{}))(t)
		closing(t, src)
		b := must(n.Register(src, memory.BufferOptions{Policy: memory.PreferDirect}))(t)
		closingBuffer(t, b)
		p := b.Path()
		if p.Direct != memory.Staged || p.Route != "" || b.GPUDirect() {
			t.Fatalf("%+v", p)
		}
		refused("the reason", p.Reason)
		return src, b
	}

	src := must(vgem.Alloc(t.Context(), size, gpualloc.Options{}))(t)
	pinned := w.a.nic.Stats().Pinned
	b, err := w.a.nic.Register(src, memory.BufferOptions{Policy: memory.DirectOnly})
	if b != nil {
		t.Error("registered by a driver that cannot")
	}
	refused("direct only", err)
	b, err = w.a.nic.Allocate(t.Context(), vgem, size, memory.BufferOptions{Policy: memory.DirectOnly})
	if b != nil {
		t.Error("registered by a driver that cannot")
	}
	refused("allocated, direct only", err)
	// Device pointers are not known here either, and the error says so.
	_, err = w.a.nic.Allocate(t.Context(), vgem, size, memory.BufferOptions{Policy: memory.DirectOnly, PeerDirect: true})
	refused("by a device pointer", err)
	if !strings.Contains(err.Error(), "no peer-memory client is registered") {
		t.Error(err)
	}
	if got := w.a.nic.Stats().Pinned; got != pinned {
		t.Errorf("%d bytes are pinned, %d were before", got, pinned)
	}
	w.ok(src.Close()) // it is not held
	if err := second(src.ReadAt(make([]byte, 1), 0)); err == nil {
		t.Error("a closed source is read")
	}

	from, mine := alloc(w.a.nic)
	into, theirs := alloc(w.b.nic)
	if got := w.a.nic.Stats().Pinned; got != pinned+size {
		t.Errorf("%d bytes are pinned, want %d more than %d", got, size, pinned)
	}
	rb := w.share(theirs.All(), allAccess)
	r := testenv.Seeded(t)
	// Written by the memory's driver, without the Buffer.
	fill := func(to *gpualloc.Buffer) []byte {
		t.Helper()
		want := make([]byte, size)
		for i := range want {
			want[i] = 1 + byte(r.Uint32N(255)) // differs from a new buffer's bytes
		}
		if n, err := to.WriteAt(want, 0); n != len(want) || err != nil {
			t.Fatal(n, err)
		}
		return want
	}
	holds := func(what string, src *gpualloc.Buffer, want []byte) {
		t.Helper()
		got := make([]byte, size)
		if n, err := src.ReadAt(got, 0); n != len(got) || err != nil {
			t.Fatal(n, err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
			}
		}
	}
	copied := func(what string, a, b int64, do func()) {
		t.Helper()
		was := [2]int64{w.a.nic.Stats().Staged, w.b.nic.Stats().Staged}
		do()
		if got := [2]int64{w.a.nic.Stats().Staged - was[0], w.b.nic.Stats().Staged - was[1]}; got != [2]int64{a, b} {
			t.Errorf("%s: %v bytes were copied, want %d and %d", what, got, a, b)
		}
	}
	want := fill(from)
	copied("write", size, size, func() {
		w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "write"))
		w.done(w.a, operation.Write, "write")
		w.ok(theirs.Sync())
		holds("written", into, want)
	})
	w.ok(zero(theirs))
	w.ok(theirs.Sync())
	want = fill(into)
	copied("read", size, size, func() {
		w.ok(theirs.Sync()) // the peer's GPU has written
		w.ok(w.a.Read(mine.All(), w.ab, rb.All(), "read"))
		w.done(w.a, operation.Read, "read")
		holds("read", from, want)
	})
	copied("nothing", 0, 0, func() {
		w.ok(mine.Sync())
		w.ok(theirs.Sync())
	})
	if err := theirs.Close(); !errors.Is(err, failure.ErrInUse) {
		t.Errorf("closed while the peer has a key: %v", err)
	}
}
