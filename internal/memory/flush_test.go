// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

func TestFlush(t *testing.T) {
	n := openNIC(t)
	for name, make := range map[string]func(t testing.TB) *Buffer{
		"host":   func(t testing.TB) *Buffer { return must(n.AllocHost(100))(t) },
		"direct": func(t testing.TB) *Buffer { return ofSource(t, n, true) },
		"staged": func(t testing.TB) *Buffer { return ofSource(t, n, false) },
	} {
		t.Run(name, func(t *testing.T) { testFlush(t, n, make(t)) })
	}
}

func ofSource(t testing.TB, n *NIC, direct bool) *Buffer {
	return must(n.Register(&memSource{mem: make([]byte, 100), direct: direct}, BufferOptions{}))(t)
}

// The network in memory that moves bytes by itself.
func TestLiveFlush(t *testing.T) {
	f := memnic.New(memnic.Exchanges(), memnic.TimeScale(0.01))
	n := openOn(t, f, fewSGEs)
	for name, staged := range map[string]bool{"direct": false, "staged": true} {
		t.Run(name, func(t *testing.T) {
			m := must(memnic.NewMemory(100, memnic.MemoryOptions{Staged: staged}))(t)
			closing(t, m)
			testFlush(t, n, must(n.Register(m, BufferOptions{}))(t))
		})
	}
}

// Only GPU memory that the NIC reaches directly is read back. Buffers share the queue pairs
// for it.
func testFlush(t *testing.T, n *NIC, b *Buffer) {
	closing(t, b)
	_, other := b.core.source().(Flusher)
	direct := b.core.source() != nil && b.Path().Direct != Staged
	if at := b.core.at.Load(); at != nil {
		at.gpu = direct // an exporter may export the host's memory, which needs no flush
	}
	for range 3 {
		if err := b.Flush(limited(t)); err != nil {
			t.Fatal(err)
		}
		if read := b.core.bytes != nil; read != direct {
			t.Errorf("read back: %v; a call of the vendor's: %v", read, other)
		}
	}
	if direct && n.readBack.link == nil {
		t.Error("there is nothing to read through")
	}
	part := must(b.Slice(10, 20))(t)
	if err := errors.Join(part.Flush(limited(t)), part.Close()); err != nil {
		t.Error(err)
	}
	if err := part.Flush(limited(t)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// flushing is a source with FlushWrites.
type flushing struct {
	*memSource
	calls int
	err   error
}

func (f *flushing) FlushWrites() error {
	f.calls++
	return f.err
}

// The fabric's device knows only memSource.
type flushingDevice struct{ *fakeDevice }

func (d flushingDevice) NewDomain() (rc.Device, error) { return d, nil }

func (d flushingDevice) Source(src rc.Source, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	return d.fakeDevice.Source(src.(*flushing).memSource, off, n, access)
}

// FlushWrites comes first: it succeeds, is not supported, or fails.
func TestFlushBySource(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name       string
		err, want  error
		read, host bool
	}{
		{"done", nil, nil, false, false},
		{"no means", errors.Join(errors.New("old"), errors.ErrUnsupported), nil, true, false},
		{"failed", broken, broken, false, false},
		{"memory of the host", broken, nil, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric()
			n := NewNIC(flushingDevice{f.Device("fake0", memnic.Limits{MaxSGE: 1})}, NICOptions{})
			closing(t, n)
			src := &flushing{memSource: &memSource{mem: make([]byte, 64), direct: true}, err: c.err}
			b := must(n.Register(src, BufferOptions{}))(t)
			closing(t, b)
			b.core.at.Load().gpu = !c.host
			if err := b.Flush(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if (src.calls == 0) != c.host || (b.core.bytes != nil) != c.read {
				t.Errorf("%d calls, read back: %v", src.calls, b.core.bytes != nil)
			}
		})
	}
}

// silentQueue completes nothing, and says that it was polled.
type silentQueue struct {
	rc.CompletionQueue
	polled func()
}

func (q silentQueue) Poll([]ibvfd.WC) (int, error) {
	q.polled()
	return 0, nil
}

// A READ that fails, or does not end, is an error, and its completion is not taken for the
// next one's.
func TestFlushFails(t *testing.T) {
	n := openNIC(t)
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	closing(t, b)
	// Like memory of many dma-bufs: more than are read at once.
	pieces := make(lower.Memory, 2*readBackDepth+3)
	for i := range pieces {
		pieces[i] = lower.Piece{Addr: b.core.local.Memory[0].Addr + uint64(i), Length: 1, Key: b.core.local.Memory[0].Key}
	}
	b.core.local = lower.NewSpace(pieces)
	good := func() {
		t.Helper()
		if err := b.Flush(limited(t)); err != nil {
			t.Fatal(err)
		}
	}
	good()
	if got := len(b.core.bytes); got != len(pieces) {
		t.Fatalf("%d dma-bufs of %d are read", got, len(pieces))
	}

	last := b.core.bytes[len(pieces)-1]
	key := last.Remote[0].Key
	last.Remote[0].Key = 1
	var wc *ibvfd.WCError
	if err := b.Flush(limited(t)); !errors.As(err, &wc) || wc.Status != ibvfd.WCRemAccessErr {
		t.Errorf("a wrong key: %v", err)
	}
	last.Remote[0].Key = key
	good()

	n.readBack.link.(*fakeLink).Refuse(2)
	if err := b.Flush(limited(t)); err == nil {
		t.Error("a READ that could not be posted was taken for one that was")
	}
	good()

	ctx, cancel := context.WithCancel(t.Context())
	n.readBack.queue = silentQueue{n.readBack.queue, cancel}
	if err := b.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("no completion: %v", err)
	}
	good()

	n.readBack.gate <- struct{}{} // another goroutine reads
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("behind another: %v", err)
	}
	<-n.readBack.gate
	good()
}

// Peers cannot read the bytes that the readBack may read: its keys are in another domain, and
// no buffer has more access than before.
func TestFlushGivesNoAccess(t *testing.T) {
	n := openNIC(t)
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	closing(t, b)
	if err := b.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	f := n.dev.(*fakeDevice).On()
	for _, p := range b.core.reg.Remote {
		if access, _ := accessOf(t, f, p.Key); access&remoteAccess != 0 {
			t.Errorf("the buffer's own key allows %v", access)
		}
	}
	for _, r := range b.core.bytes {
		if access, size := accessOf(t, f, r.Remote[0].Key); size != 1 || access != ibvfd.AccessRemoteRead {
			t.Errorf("%d bytes with %v", size, access)
		}
	}
}

// Resources that could not be freed are freed later, like those of a buffer and a NIC.
func TestFlushEndsLate(t *testing.T) {
	n := openNIC(t)
	b := must(n.Register(&memSource{mem: make([]byte, 64), direct: true}, BufferOptions{}))(t)
	if err := b.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	stubborn(b.core.bytes[0], 1)
	if err := b.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	n.readBack.link = &stuckLink{Link: n.readBack.link, stays: 1}
	stubborn(n.readBack.into, 1)
	for range 2 {
		if err := n.Close(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("close the NIC: %v", err)
		}
	}
}
