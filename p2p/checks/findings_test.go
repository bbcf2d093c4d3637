// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
)

// A finding fits the machine: it quotes a value of the machine, and its remedy is not already in
// place and is possible there.
func TestFindingsFitTheMachine(t *testing.T) {
	proprietary := func(f *testenv.Tree) func(*testing.T, string) {
		put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01")(f)
		return put("sys/module/nvidia/taint", "POE")(f)
	}
	inContainer, without := put(".dockerenv", ""), put("proc/self/status", "CapEff:\t0000000400004000")
	guest := swap("flags\t\t: ", "flags\t\t: hypervisor ")
	translating := swap(":identity", ":DMA-FQ")
	fault := log("DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0x200000001000 [fault reason 0x05] PTE Write access is not set")
	infiniBand := swap("Ethernet", "InfiniBand")
	const pcieP2P = "sys/module/amdgpu/parameters/pcie_p2p"
	unlinked := drop("sys/class/kfd/kfd/topology/nodes/2/io_links")
	level := func(value string) edit { return exactly("proc/self/environ", "NCCL_NET_GDR_LEVEL="+value+"\x00") }
	disabled := func(f *testenv.Tree) func(*testing.T, string) {
		put(aPort+"/phys_state", "3: Disabled")(f)
		return put(aPort+"/state", "1: DOWN")(f)
	}
	polling := func(f *testenv.Tree) func(*testing.T, string) {
		put(aPort+"/phys_state", "2: Polling")(f)
		return put(aPort+"/state", "1: DOWN")(f)
	}
	initial := func(f *testenv.Tree) func(*testing.T, string) {
		put(hgxPort+"/phys_state", "5: LinkUp")(f)
		return put(hgxPort+"/state", "2: INIT")(f)
	}
	down := put(hgxPort+"/state", "1: DOWN")
	empty := func(f *testenv.Tree) func(*testing.T, string) {
		drop(aPort + "/gids/3")(f)
		return put(aPort+"/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000")(f)
	}
	slow := func(f *testenv.Tree) func(*testing.T, string) {
		put(amdGPU+"/current_link_speed", "16.0 GT/s PCIe")(f)
		return put(amdGPU+"/current_link_width", "8")(f)
	}
	for name, c := range map[string]struct {
		id, on  string
		edits   []edit
		live    check.Live
		result  p2p.Result
		scope   string // the first of it
		read    string
		where   string // the first file
		change  string
		command string
	}{
		"width alone of an idle GPU": {id: "PCIE-LINK", on: "small-mi300", edits: []edit{slow}, result: warn, scope: "0000:13:00.0", read: "x8 of x16", where: "/sys/bus/pci/devices/0000:13:00.0/current_link_width", change: "seat the device anew"},
		"speed of a NIC":             {id: "PCIE-LINK", on: "small-mi300", edits: []edit{put(amdNIC+"/current_link_speed", "16.0 GT/s PCIe")}, result: warn, scope: "bnxt_re0", read: "16 GT/s x16 of 32 GT/s x16", where: "/sys/bus/pci/devices/0000:14:00.0/current_link_speed", change: "seat the device anew"},
		"idle GPU of full width":     {id: "PCIE-LINK", on: "small-mi300", edits: []edit{put(amdGPU+"/current_link_speed", "2.5 GT/s PCIe")}, result: unknown, scope: "0000:13:00.0", read: "x16; PCIE-LINK-IDLE reports its speed", where: "/sys/bus/pci/devices/0000:13:00.0/current_link_width"},

		"identity already": {id: "ISO-FAULTS", on: "small-mi300", edits: []edit{fault}, result: fail, scope: "0000:13:00.0 -> bnxt_re0", read: "DMAR: ", change: "passes DMA through already"},
		"translating":      {id: "ISO-FAULTS", on: "small-mi300", edits: []edit{fault, translating}, result: fail, read: "DMAR: ", change: "let the IOMMU pass DMA through", command: "iommu=pt"},

		"level of another socket":           {id: "LIB-NCCL-LEVEL", on: "wrong-socket", result: warn, read: "is farther, up to SYS", change: "as far as the nearest direct NIC", command: "NCCL_NET_GDR_LEVEL=SYS"},
		"level of one socket":               {id: "LIB-NCCL-LEVEL", on: "wrong-socket", edits: []edit{swap("numa_node=1", "numa_node=0")}, result: warn, read: "is farther, up to PHB", change: "as far as the nearest direct NIC", command: "NCCL_NET_GDR_LEVEL=PHB"},
		"level that is the obstacle":        {id: "LIB-NCCL-LEVEL", on: "small-hgx", edits: []edit{level("LOC")}, result: warn, read: "ends at LOC, nearer than", change: "take the variable away"},
		"level by number":                   {id: "LIB-NCCL-LEVEL", on: "small-hgx", edits: []edit{level("0")}, result: warn, read: "NCCL_NET_GDR_LEVEL=0: GPUDirect RDMA ends at LOC", change: "take the variable away"},
		"network device of a port":          {id: "NET-GID", on: "small-mi300", edits: []edit{drop(aPort + "/gids/3")}, result: warn, scope: "bnxt_re0/1", read: "none of RoCE v2", change: "IPv4 address", command: "ip addr add ADDRESS/24 dev eth0"},
		"link-local addresses alone":        {id: "NET-IPV6LL", on: "small-mi300", edits: []edit{drop(aPort + "/gids/3")}, result: warn, scope: "bnxt_re0/1", read: "link-local ones only", change: "IPv4 address", command: "ip addr add ADDRESS/24 dev eth0"},
		"disabled Ethernet port":            {id: "NIC-STATE", on: "small-mi300", edits: []edit{disabled}, result: warn, scope: "bnxt_re0/1", read: "1: DOWN, phys_state 3: Disabled", change: "set the network device up", command: "ip link set eth0 up"},
		"Ethernet port without a link":      {id: "NIC-STATE", on: "small-mi300", edits: []edit{polling}, result: warn, scope: "bnxt_re0/1", read: "1: DOWN, phys_state 2: Polling", change: "look at the cable and the switch"},
		"port that nobody has a name for":   {id: "NIC-STATE", on: "small-hgx", edits: []edit{infiniBand, initial}, result: warn, scope: "mlx5_0/1", read: "2: INIT, phys_state 5: LinkUp", change: "subnet manager"},
		"virtual function without GUID":     {id: "NIC-STATE", on: "small-hgx", edits: []edit{infiniBand, down, put(amdNIC+"/infiniband/mlx5_0/node_guid", "0000:0000:0000:0000"), text(amdNIC+"/physfn", "../0000:16:00.0")}, result: warn, scope: "mlx5_0/1", read: "a virtual function without a GUID", change: "give the virtual function GUIDs", command: "ip link set PF vf N node_guid GUID; ip link set PF vf N port_guid GUID"},
		"network device that is given away": {id: "NET-GID-NS", on: "small-mi300", edits: []edit{empty}, result: warn, scope: "bnxt_re0/1", read: "as of a container that it was given to", change: "use the NIC there", command: "ip netns exec NAMESPACE ip link set NETDEV netns 1"},
		"fabric without a manager":          {id: "NET-SM", on: "small-hgx", edits: []edit{infiniBand}, result: fail, scope: "mlx5_0/1", read: "0", change: "check that the fabric's subnet manager runs"},

		"capabilities of a copy":      {id: "ENV-CAPS", on: "small-mi300", edits: []edit{without}, result: warn, read: "without CAP_SYS_ADMIN", change: "take the copy again, as root"},
		"capabilities of a container": {id: "ENV-CAPS", on: "small-mi300", edits: []edit{without, inContainer}, result: warn, read: "without CAP_SYS_ADMIN", change: "run as root", command: "--cap-add SYS_ADMIN --cap-add BPF --cap-add PERFMON --cap-add NET_RAW"},

		"nouveau":           {id: "GPU-DRIVER", on: "small-hgx", edits: []edit{swap("driver:nvidia", "driver:nouveau")}, result: fail, read: "nouveau: it pins", change: "install NVIDIA's open modules"},
		"accelerator":       {id: "GPU-DRIVER", on: "small-hgx", edits: []edit{swap("driver:nvidia", "driver:qaic")}, result: fail, read: "qaic: its buffers", change: "leave it out"},
		"no driver":         {id: "GPU-DRIVER", on: "small-hgx", edits: []edit{swap("driver:nvidia", ""), drop("proc/driver/nvidia/gpus")}, result: fail, read: "none", change: "bind the GPU's driver"},
		"parameter of KFD":  {id: "AMD-PARAM", on: "small-mi300", edits: []edit{put("sys/module/amdgpu/parameters/pcie_p2p", "N")}, result: warn, read: "N", change: "take amdgpu.pcie_p2p=0 away"},
		"links, parameter":  {id: "AMD-KFD-LINKS", on: "small-mi300", edits: []edit{unlinked, put(pcieP2P, "N")}, result: warn, read: "without links", change: "its parameter is off", command: "amdgpu.pcie_p2p=1"},
		"links, built":      {id: "AMD-KFD-LINKS", on: "small-mi300", edits: []edit{unlinked}, result: warn, read: "without links", change: "below one PCI switch"},
		"links, built, old": {id: "AMD-KFD-LINKS", on: "small-mi300", edits: []edit{unlinked, drop(pcieP2P)}, result: warn, read: "without links", change: "below one PCI switch"},
		"links, not built":  {id: "AMD-KFD-LINKS", on: "small-mi300", edits: []edit{unlinked, drop(pcieP2P), swap("CONFIG_HSA_AMD_P2P=y", "# CONFIG_HSA_AMD_P2P is not set")}, result: warn, read: "without links", change: "built with it", command: "CONFIG_HSA_AMD_P2P=y"},
		"no libibverbs":     {id: "NIC-PROVIDER-LIB", on: "small-mi300", edits: []edit{drop("usr/lib64"), put("usr/lib64/libc.so", "")}, result: warn, read: "no libibverbs", change: "libibverbs1 and ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES"},
		"no provider":       {id: "CTR-LIBS", on: "small-mi300", edits: []edit{drop("etc/libibverbs.d/bnxt")}, result: warn, scope: "bnxt_re0", read: "no bnxt_re.driver", change: "ibverbs-providers of Debian and Ubuntu, libibverbs of RHEL and SLES"},
		"UCX without KFD":   {id: "LIB-UCX", on: "small-mi300", edits: []edit{drop("dev/kfd")}, result: warn, read: "none of these files", change: "load the driver of the GPU"},
		"virtual graphics":  {id: "VIRTIO-GPU", on: "small-mi300", edits: []edit{swap("driver:amdgpu", "driver:virtio_gpu")}, result: warn, scope: "0000:13:00.0", read: "do not count", change: "nothing, for a screen"},
		"instances":         {id: "NV-MIG", on: "small-hgx", edits: []edit{put("proc/driver/nvidia/capabilities/gpu1/mig/gi3/access", "DeviceFileMinor: 3")}, result: warn, scope: "0000:15:00.0", read: "it has instances", change: "take the instances away", command: "nvidia-smi mig -i 0000:15:00.0 -dci; nvidia-smi mig -i 0000:15:00.0 -dgi"},
		"instances of some": {id: "NV-MIG", on: "small-hgx", edits: []edit{put("proc/driver/nvidia/capabilities/gpu7/mig/gi3/access", "DeviceFileMinor: 3")}, result: warn, read: "gpu7 has instances", change: "take the instances away", command: "nvidia-smi mig -dci; nvidia-smi mig -dgi"},

		"registrations by nvidia-peermem": {id: "NV-MODTYPE", on: "small-hgx", edits: []edit{proprietary, put("sys/module/nvidia_peermem/version", "535"), put("sys/kernel/mm/memory_peers/nv_mem/version", "1")}, result: warn, read: "nvidia-peermem is registered", change: "for dma-bufs install the open modules"},

		"root of a guest":        {id: "P2P-WHITELIST", on: "flat-vm", result: warn, read: "its tree need not be the hardware's", change: "give the guest a switch"},
		"pair of a guest":        {id: "P2P-VERDICT", on: "xe", edits: []edit{guest}, result: fail, read: "is not on the kernel's list", change: "give the guest a switch"},
		"pair of bare hardware":  {id: "P2P-VERDICT", on: "xe", result: fail, read: "is not on the kernel's list", change: "use a NIC below one PCI switch"},
		"decision of a guest":    {id: "P2P-VERDICT", on: "flat-vm", result: warn, read: "does not ask the kernel", change: "give the guest a switch"},
		"root that nobody meets": {id: "P2P-WHITELIST", on: "small-mi300", edits: []edit{cpu(machinetest.Xeon), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1")}, result: skip, read: "is not on the kernel's list; no pair here goes over it"},

		"no such device file": {id: "LIM-DEVICE-CG", on: "small-mi300", live: check.Live{Opens: func(string) error { return unix.ENOENT }}, result: skip, read: "there is no rdma_cm"},
		"losses without PFC":  {id: "NET-PFC", on: "small-mi300", live: flowControl(), edits: []edit{put(aPort+"/hw_counters/out_of_sequence", "12")}, result: warn, scope: "bnxt_re0/1", read: "PFC is off on eth0", change: "configure PFC", command: "dcb pfc set dev eth0 prio-pfc 3:on"},
		"losses with PFC":     {id: "NET-PFC", on: "small-mi300", live: flowControl(3, 6), edits: []edit{put(aPort+"/hw_counters/out_of_sequence", "12")}, result: warn, scope: "bnxt_re0/1", read: "PFC is on on eth0 for priority 3 6", change: "see that the traffic has a priority"},
		"losses without DCB":  {id: "NET-PFC", on: "small-mi300", live: check.Live{PFC: func(string) ([]int, error) { return nil, unix.EOPNOTSUPP }}, edits: []edit{put(aPort+"/hw_counters/out_of_sequence", "12")}, result: warn, scope: "bnxt_re0/1", read: "out_of_sequence 12", change: "configure PFC or ECN", command: "dcb pfc set dev eth0 prio-pfc 3:on"},

		"no tracefs": {id: "KRN-TRACEPOINTS", on: "small-mi300", edits: []edit{drop("sys/kernel/tracing")}, result: unknown, read: "tracefs is not mounted"},
	} {
		found := checked(t, testenv.Machines[c.on](), c.live, c.id, c.edits...)
		i := slices.IndexFunc(found, func(f check.Finding) bool {
			return f.Result == c.result && strings.Contains(f.Read, c.read) && (c.scope == "" && len(f.Scope) == 0 || c.scope != "" && slices.Contains(f.Scope, c.scope) || c.scope == "" && f.Scope != nil)
		})
		if i < 0 {
			t.Errorf("%s: no %v %q of %q: %v", name, c.result, c.read, c.scope, said(found))
			continue
		}
		f := found[i]
		if c.where != "" && (len(f.Where) == 0 || f.Where[0] != c.where) {
			t.Errorf("%s: read in %v, want %s", name, f.Where, c.where)
		}
		switch {
		case c.change == "" && f.Remedy == nil:
		case f.Remedy == nil || c.change == "" || !strings.Contains(f.Remedy.Change, c.change) || f.Remedy.Command != c.command:
			t.Errorf("%s: %+v, want %q, %q", name, f.Remedy, c.change, c.command)
		}
	}
}
