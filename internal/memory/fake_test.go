// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Tests run on a network in memory, for cases that a NIC cannot be made to produce, and for
// machines without a NIC. It carries out work requests when their sender's completion queue is
// polled.
type (
	fabric     = memnic.Network
	fakeDevice = memnic.Device
	fakeLink   = memnic.Link
)

func newFabric() *fabric { return memnic.New(memnic.Manual()) }

// fewSGEs makes operations on more than a few pieces take several work requests.
var fewSGEs = memnic.Limits{MaxSGE: 5, Inline: 64}

const allAccess = ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic

// accessOf returns what a key of the fabric allows, and the number of bytes that it covers.
func accessOf(t testing.TB, f *fabric, key uint32) (ibvfd.Access, int) {
	t.Helper()
	access, size, ok := f.Access(key)
	if !ok {
		t.Fatalf("there is no key %#x", key)
	}
	return access, size
}

// openNIC opens a NIC of a fabric of its own, in which the test must free everything.
func openNIC(t testing.TB) *NIC {
	return openOn(t, newFabric(), fewSGEs)
}

func openOn(t testing.TB, f *fabric, limits memnic.Limits) *NIC {
	t.Cleanup(func() {
		if f.Open() != 0 {
			t.Errorf("%d MRs and links were left", f.Open())
		}
	})
	n := NewNIC(f.Device("fake0", limits), NICOptions{})
	closing(t, n)
	return n
}

// memSource is a source in Go memory, which is accessed like a GPU's: only by ReadAt and
// WriteAt, and by the fabric's DMA if it is direct.
type memSource struct {
	mem    []byte
	direct bool

	mu    sync.Mutex
	holds int
}

var errNotDirect = errors.New("the memory is not direct")

// DMA gives the fabric's devices the bytes.
func (m *memSource) DMA() ([]byte, error) {
	if !m.direct {
		return nil, errNotDirect
	}
	return m.mem, nil
}

func (m *memSource) Size() int64                  { return int64(len(m.mem)) }
func (m *memSource) Segments() []gpualloc.Segment { return nil }
func (m *memSource) PCI() (pciaddr.Addr, bool)    { return pciaddr.Addr{Bus: 3}, true }

func (m *memSource) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.mem[off:]), nil
}

func (m *memSource) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.mem[off:], p), nil
}

func (m *memSource) Hold() (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.holds--
	}), nil
}

// stuckLink is a link whose first closes fail.
type stuckLink struct {
	rc.Link
	stays int
}

func (l *stuckLink) Close() error {
	if l.stays--; l.stays >= 0 {
		return unix.EBUSY
	}
	return l.Link.Close()
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func second[T any](_ T, err error) error { return err }

// closing closes c when the test ends, twice: the second time must do nothing.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
}

// limited ends far above the time that any test needs; no test asserts a time.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// random fills a buffer with random bytes, and returns them.
func random(t testing.TB, r *rand.Rand, b *Buffer, size int64) []byte {
	t.Helper()
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	if n, err := b.WriteAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}
