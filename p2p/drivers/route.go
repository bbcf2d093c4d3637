// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// route answers whether the NIC's driver can register the GPU's memory at all: by a dma-buf,
// which the GPU's driver has to export and the NIC's to import, or else by a peer-memory client.
func (r *rules) route() chain.Answer {
	byDMABuf := r.dmabufRoute()
	if byDMABuf.State.Good() || r.e.Driver != "nvidia" {
		return byDMABuf
	}
	registered, where := PeerClient(r.m)
	switch registered {
	case placement.Yes:
		r.p.ByPeerMem = true
		return chain.Hold("no dma-buf is needed: nvidia-peermem is registered with ib_core, for programs that call ibv_reg_mr").With(where, "there")
	case placement.AnswerUnknown:
		if byDMABuf.State == chain.Breaks {
			why := byDMABuf.Why
			byDMABuf = chain.Open("whether nvidia-peermem is registered with ib_core is not known").With(where, "not read")
			byDMABuf.Why = append(why[:len(why):len(why)], byDMABuf.Why...)
		}
	}
	return byDMABuf
}

// dmabufRoute is the one by a dma-buf.
func (r *rules) dmabufRoute() chain.Answer {
	m, e, i := r.m, r.e, r.i
	switch {
	case m.Config != nil && m.Config.Answer(machine.ConfigDMABuf) == placement.No:
		return chain.Refuse(0, chain.StageExport, "the kernel is built without %s (%s): there is nothing to import", machine.ConfigDMABuf, m.Kernel.Source).
			With(m.Kernel.Source, "%s is not set", machine.ConfigDMABuf)
	case RegistersNone(m):
		return chain.Refuse(unix.EPROTONOSUPPORT, chain.StageUverbs, "%s does not know how to register a dma-buf, which came with %v", m.Kernel.Release, machine.V5_12).
			With("/proc/sys/kernel/osrelease", "%s", m.Kernel.Release)
	case i.Kind == NoImporter && i.NoODP:
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageUverbs, "the kernel is built without %s (%s), and mlx5 then imports no dma-bufs", machine.ConfigODP, m.Kernel.Source).
			With(m.Kernel.Source, "%s is not set", machine.ConfigODP)
	case i.Kind == NoImporter:
		return chain.Refuse(unix.EOPNOTSUPP, chain.StageUverbs, "%s of %s imports no dma-bufs", i.DriverName(), m.Kernel.Release).
			With("/proc/sys/kernel/osrelease", "%s", m.Kernel.Release)
	case e.Proprietary:
		return chain.Refuse(0, chain.StageExport, "%q is NVIDIA's proprietary module, which exports no dma-bufs: there is nothing to register", e.Driver).
			With("/sys/module/nvidia/taint", "P")
	case e.Driver == "nvidia" && !e.ofNVIDIA():
		return chain.Open("whether NVIDIA's modules are the open ones, which alone export dma-bufs, is not known").
			With("/sys/module/nvidia/taint", "not read")
	}
	return chain.Hold("").With("/proc/sys/kernel/osrelease", "%s", m.Kernel.Release)
}

// PeerClient reports whether nvidia-peermem is registered as a peer-memory client: the module
// alone loads and does nothing where ib_core has no such clients.
func PeerClient(m *machine.Machine) (registered placement.Answer, where string) {
	const dir = "sys/kernel/mm/memory_peers/"
	registered = placement.No
	for _, client := range []string{"nv_mem", "nv_mem_nc"} {
		there, at := m.There(dir + client + "/version")
		switch {
		case there == placement.Yes:
			return there, at
		case there == placement.AnswerUnknown:
			registered = there
		}
	}
	return registered, "/" + dir + "nv_mem"
}
