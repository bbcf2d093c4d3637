// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
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

// device is what NICs of tests have: tests may put another device into it.
type device struct{ rc.Device }

// fakeOf returns the fabric's device that a NIC was opened with.
func fakeOf(n *memory.NIC) *fakeDevice { return n.Device().(*device).Device.(*fakeDevice) }

// replaceDevice makes a NIC use another device.
func replaceDevice(n *memory.NIC, d rc.Device) { n.Device().(*device).Device = d }

func vendorErr(s ibvfd.WCStatus) uint32 { return memnic.VendorErr(s) }

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

// connTo returns the connection to a peer.
func (e *Endpoint) connTo(p operation.Peer) *Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, err := e.table.lookup(p)
	if err != nil {
		panic(err)
	}
	return x.conn
}

// linkTo returns the link of the connection to a peer.
func (e *Endpoint) linkTo(p operation.Peer) *fakeLink {
	return e.connTo(p).Works.State().Link.(*fakeLink)
}
