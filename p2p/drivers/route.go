// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"io/fs"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// route answers whether the NIC's driver can register the GPU's memory at all: by a
// peer-memory client, or by a dma-buf that the GPU's driver exports and the NIC's driver imports.
func (r *rules) route() chain.Answer {
	if k := r.m.Kernel; k.UnreadYet() {
		return chain.Open("the rules of kernels after %v were not read, and this is %s", machine.Newest, k.Release).
			With("/proc/sys/kernel/osrelease", "%s", k.Release)
	}
	if r.p.ByPeerMem && !r.m.Kernel.Version.Known() {
		return chain.Open("%s, and the rules depend on it", r.m.Kernel.Unversioned()).With("/proc/sys/kernel/osrelease", "%s", r.m.Kernel.Release)
	}
	if r.p.ByPeerMem {
		name, where := peerName(r.e.Driver), ""
		_, where = PeerClient(r.m, r.e.Driver)
		return chain.Hold("no dma-buf is needed: %s is registered with ib_core, for programs that call ibv_reg_mr", name).With(where, "there")
	}
	return r.dmabufRoute()
}

// dmabufRoute answers for a registration by a dma-buf.
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
	case i.ODP == placement.AnswerUnknown && i.Driver == "mlx5_core" && !i.OutOfTree:
		return chain.Open("whether the kernel has %s, without which mlx5 imports no dma-bufs, is not known: %s", machine.ConfigODP, m.Kernel.Source).
			With(m.Kernel.Source, "not read")
	case e.Driver == "nvidia" && !e.ofNVIDIA():
		return chain.Open("whether NVIDIA's modules are the open ones, which alone export dma-bufs, is not known").
			With("/sys/module/nvidia/taint", "not read")
	}
	if doubt, where := otherUverbs(m, i); doubt != "" {
		return chain.Open("%s", doubt).With(where, "")
	}
	return chain.Hold("").With("/proc/sys/kernel/osrelease", "%s", m.Kernel.Release)
}

// otherUverbs doubts an ib_uverbs that is not the kernel's own beside a NIC's driver that is. The
// method that registers dma-bufs is in ib_uverbs, and older releases of MLNX_OFED do not have it.
func otherUverbs(m *machine.Machine, i Importer) (doubt, where string) {
	const taint = "sys/module/ib_uverbs/taint"
	if i.OutOfTree { // the release of the NIC's driver answers for both
		return "", ""
	}
	switch r := machine.Once(m, "taint of ib_uverbs", func() machine.Reading { return m.Read(taint) }); {
	case r.Err == nil && m.OutOfTree("ib_uverbs") == placement.Yes:
		return "ib_uverbs is not the kernel's own, and whether it knows how to register a dma-buf is not known", r.Where
	case r.Err != nil && !errors.Is(r.Err, fs.ErrNotExist) && !errors.Is(r.Err, machine.ErrNotCopied):
		return "whether ib_uverbs is the kernel's own is not known: " + r.Why(), r.Where
	}
	return "", ""
}

// peerClients are the names by which modules of GPU drivers register with ib_core of MLNX_OFED
// and DOCA. peerModules are these modules.
var (
	peerClients = map[string][]string{"nvidia": {"nv_mem", "nv_mem_nc"}, "amdgpu": {"amdkfd"}}
	peerModules = map[string][]string{"nvidia": {"nvidia_peermem", "nv_peer_mem"}, "amdgpu": {"amdgpu"}}
)

// asksPeers reports whether a NIC's driver asks ib_core's peer-memory clients about memory, by
// ib_umem_get_peer(). Both drivers of MLNX_OFED do. Ubuntu's kernels have such clients, too: their
// mlx5 asks, and their mlx4 does not.
func asksPeers(m *machine.Machine, driver string) placement.Answer {
	switch driver {
	case "mlx5_core":
		return placement.Yes
	case "mlx4_core":
		return m.OutOfTree("mlx4_ib")
	}
	return placement.AnswerUnknown
}

// peerName is the name of a driver's peer-memory client.
func peerName(driver string) string {
	if driver == "nvidia" {
		return "nvidia-peermem"
	}
	return driver + "'s peer-memory client"
}

// PeerClient says whether a peer-memory client of the GPU's driver is registered with ib_core,
// and by which file. A client's module also loads if ib_core does not support clients, and then
// does nothing.
func PeerClient(m *machine.Machine, driver string) (registered placement.Answer, where string) {
	return machine.OnceValues(m, "peer-memory client of "+driver, func() (placement.Answer, string) { return readPeerClient(m, driver) })
}

// digit matches a version.
var digit = regexp.MustCompile(`^[0-9]`)

func readPeerClient(m *machine.Machine, driver string) (registered placement.Answer, where string) {
	const dir = "sys/kernel/mm/memory_peers/"
	registered = placement.No
	// The kernel's own amdgpu has no such client.
	if len(peerClients[driver]) == 0 || driver == "amdgpu" && m.OutOfTree(driver) == placement.No {
		return placement.No, "/" + dir
	}
	for _, client := range peerClients[driver] {
		name := dir + client + "/version"
		there, at := m.There(name)
		version := m.Read(name)
		switch {
		case there == placement.Yes && version.Err == nil && digit.MatchString(version.Text):
			return there, at
		case there == placement.Yes: // the file does not have a version
			registered = placement.AnswerUnknown
		case there == placement.AnswerUnknown, m.Sys.Exists("kernel/mm/memory_peers/" + client):
			registered = placement.AnswerUnknown
		}
	}
	// Every kernel has /sys/kernel/mm. A copy without it cannot show the clients.
	if !m.Sys.Exists("kernel/mm") || !m.WholeSys() && !m.Sys.Exists("kernel/mm/memory_peers") && mayBeLoaded(m, peerModules[driver]) {
		registered = placement.AnswerUnknown
	}
	if registered == placement.AnswerUnknown && m.WholeSys() && !mayBeLoaded(m, peerModules[driver]) {
		registered = placement.No
	}
	return registered, "/" + dir + peerClients[driver][0]
}

// mayBeLoaded reports whether one of the modules is loaded, or may be.
func mayBeLoaded(m *machine.Machine, modules []string) bool {
	for _, module := range modules {
		if there, _ := m.There("sys/module", module); there != placement.No {
			return true
		}
	}
	return false
}
