// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Letters are the names that NCCL and nvidia-smi have for the way between two functions.
// They depend on the shape of the PCI tree, and not on the kernel's decision: the kernel
// may not support a pair that is PIX.
type Letters struct {
	// NCCL is LOC, PIX, PXB, PHB or SYS. NCCL counts switches and not ports, and a
	// Broadcom switch of two levels as one switch. NVLink and C2C do not matter here,
	// because they are not part of the tree.
	NCCL string
	// NVML is the entry in the matrix of `nvidia-smi topo`: X, PIX, PXB, PHB, NODE or SYS.
	NVML string
}

// Letters returns the names of the way between two functions; "" if it is not known.
func (m *Machine) Letters(a, b pciaddr.Addr) Letters {
	na, nb := m.Node(a), m.Node(b)
	if na.Err != nil || nb.Err != nil {
		return Letters{}
	}
	if a == b {
		return Letters{NCCL: "LOC", NVML: "X"}
	}
	l := m.overRoot(na, nb)
	sa, err1 := m.fused(switches(na.Up))
	sb, err2 := m.fused(switches(nb.Up))
	if i, j, ok := Common(sa, sb); err1 != nil || err2 != nil {
		l.NCCL = ""
	} else if ok {
		l.NCCL = "PXB"
		if i == 0 && j == 0 {
			l.NCCL = "PIX"
		}
	}
	// A switch has two ports on the way: a downstream port and the upstream port above it.
	if i, j, ok := Common(na.Up, nb.Up); ok {
		l.NVML = "PXB"
		if i <= 1 && j <= 1 {
			l.NVML = "PIX"
		}
	}
	return l
}

// switches picks the bridges above a function that NCCL sees.
func switches(up []pciaddr.Addr) []pciaddr.Addr {
	var out []pciaddr.Addr
	for i := 1; i < len(up); i += 2 {
		out = append(out, up[i])
	}
	return out
}

// Common finds the nearest bridge that is in both lists of bridges, and returns its index in
// each; ok is false if there is none.
func Common(a, b []pciaddr.Addr) (i, j int, ok bool) {
	for i, x := range a {
		if j := slices.Index(b, x); j >= 0 {
			return i, j, true
		}
	}
	return 0, 0, false
}

// overRoot is for functions without a common bridge.
func (m *Machine) overRoot(a, b *Node) Letters {
	pa, pb := m.placeOf(a), m.placeOf(b)
	switch {
	case pa.err != nil || pb.err != nil:
		return Letters{}
	case pa.bus == pb.bus:
		return Letters{NCCL: "PHB", NVML: "PHB"}
	case pa.numa == pb.numa: // NCCL and NVML treat -1 as any other node
		return Letters{NCCL: "PHB", NVML: "NODE"}
	case pa.numa < 0 || pb.numa < 0:
		return Letters{NCCL: "SYS"}
	}
	return Letters{NCCL: "SYS", NVML: "SYS"}
}

// place is the root bus and the NUMA node of a function.
type place struct {
	bus  string
	numa int
	err  error
}

// placeOf reads a function's place, once.
func (m *Machine) placeOf(n *Node) *place {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if n.place == nil {
		chain, err1 := pci.Chain(m.Sys, n.Addr)
		f, err2 := pci.ReadFunction(m.Sys, n.Addr)
		n.place = &place{numa: f.NUMANode, err: FirstError(err1, err2)}
		if n.place.err == nil {
			n.place.bus = chain[0]
		}
	}
	return n.place
}
