// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/fi"
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Options are those of a Network. The zero value is usable.
type Options struct {
	// HoldWrites makes NICs acknowledge a write before its bytes are in the memory. The bytes
	// arrive when they are pushed, as OnPlace says. So a test finds a program that takes an
	// acknowledgement, or the order of writes, for the arrival of bytes. By default bytes are in
	// the memory when the write is acknowledged.
	HoldWrites bool
	// NoAtomics makes NICs without fetch-and-add and compare-and-swap.
	NoAtomics bool
	// KeysStay makes NICs that can put a key on other memory, as gpurdma.Buffer.Move needs it.
	// Otherwise Move returns errors.ErrUnsupported, as on a kernel without the patch.
	KeysStay bool
	// TimeScale multiplies the time after which a NIC repeats a request that was not answered,
	// and so the time after which it gives up a silent peer; default 1.
	TimeScale float64
}

// Network connects machines. Each call of Open adds one. Its methods may be called from several
// goroutines at once. A Network needs no Close.
type Network struct {
	net       *memnic.Network
	noAtomics bool

	mu       sync.Mutex
	machines []*machine
	nics     map[int]*NIC // by number
}

// machine is a call of Open.
type machine struct {
	net    *Network
	fabric *gpurdma.Fabric
	nics   []*NIC

	mu     sync.Mutex
	memory []*Memory // that Fabric.Alloc has allocated
}

// NewNetwork makes a network without machines.
func NewNetwork(opt Options) *Network {
	options := []memnic.Option{memnic.Exchanges(), memnic.Hosts()}
	if opt.TimeScale > 0 {
		options = append(options, memnic.TimeScale(opt.TimeScale))
	}
	if opt.KeysStay {
		options = append(options, memnic.Movable())
	}
	n := &Network{net: memnic.New(options...), noAtomics: opt.NoAtomics, nics: map[int]*NIC{}}
	if opt.HoldWrites {
		n.OnPlace(func(Placement) time.Duration { return Held })
	}
	return n
}

// New returns a Fabric with one NIC, mem0, on a network of its own. It is for programs whose
// two sides use the same Fabric. It panics if the machine has no memory.
func New() *gpurdma.Fabric {
	f, err := NewNetwork(Options{}).Open()
	if err != nil {
		panic(err)
	}
	return f
}

// Open adds a machine with NICs of these names; without a name it has one, mem0. It takes the
// place of gpurdma.Open. Machines may have NICs of the same names.
func (n *Network) Open(names ...string) (*gpurdma.Fabric, error) {
	if len(names) == 0 {
		names = []string{"mem0"}
	}
	m := &machine{net: n}
	var nics []*memory.NIC
	for _, name := range names {
		dev := n.net.Device(name, memnic.Limits{NoAtomics: n.noAtomics, Machine: m})
		m.nics = append(m.nics, &NIC{machine: m, name: name, dev: dev})
		nics = append(nics, memory.NewNIC(device{dev}, memory.NICOptions{}))
	}
	f, err := bridge.NewFabric(nics, m.alloc)
	if err != nil {
		return nil, err
	}
	m.fabric = f.(*gpurdma.Fabric)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machines = append(n.machines, m)
	for _, nic := range m.nics {
		n.nics[nic.dev.Number()] = nic
	}
	return m.fabric, nil
}

// OpenDomain adds a machine with one NIC of that name, and opens the NIC for package fi. It takes
// the place of fi.Open.
func (n *Network) OpenDomain(name string) (*fi.Domain, *NIC) {
	dev := n.net.Device(name, memnic.Limits{NoAtomics: n.noAtomics})
	nic := &NIC{machine: &machine{net: n}, name: name, dev: dev}
	n.mu.Lock()
	n.nics[dev.Number()] = nic
	n.mu.Unlock()
	return bridge.NewDomain(memory.NewNIC(device{dev}, memory.NICOptions{})).(*fi.Domain), nic
}

// machine returns the machine of a Fabric.
func (n *Network) machine(f *gpurdma.Fabric) *machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.machines {
		if m.fabric == f {
			return m
		}
	}
	panic(fmt.Sprintf("fabrictest: %v is not of this network", f))
}

// alloc allocates for Fabric.Alloc.
func (m *machine) alloc(_ context.Context, spec string, size int64) (any, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	mem, err := newMemory(size, memnic.MemoryOptions{PCI: pciOf(spec), Staged: spec == "staged"})
	if err != nil {
		return nil, err
	}
	mem.closed = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.memory = slices.DeleteFunc(m.memory, func(x *Memory) bool { return x == mem })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory = append(m.memory, mem)
	return mem, nil
}

// Allocated returns the memory that Alloc of a Fabric has allocated and that is not freed, in the
// order of allocation. It leaves out "host" memory.
func (n *Network) Allocated(f *gpurdma.Fabric) []*Memory {
	m := n.machine(f)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.memory)
}

// Late returns the number of operations that Hold keeps, of those that have arrived late and were
// carried out, and of those that have arrived late and were dropped.
func (n *Network) Late() (kept, landed, dropped int) { return n.net.Late() }

// InUse returns the number of registrations, connections and queues of the NICs that are not
// closed: 0 when all Fabrics and Domains are closed. A test uses it to find leaks.
func (n *Network) InUse() int { return n.net.Open() }
