// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"maps"
	"path"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// checkCase is a machine, what is changed on it, and what a check then finds.
type checkCase struct {
	on    string
	want  p2p.Result
	edits []edit
	live  check.Live
}

const (
	pass    = p2p.ResultPass
	warn    = p2p.ResultWarn
	fail    = p2p.ResultFail
	unknown = p2p.ResultUnknown
	skip    = p2p.ResultSkip
)

func on(machine string, want p2p.Result, edits ...edit) checkCase {
	return checkCase{on: machine, want: want, edits: edits}
}

func (c checkCase) with(l check.Live) checkCase {
	c.live = l
	return c
}

// log puts a line into the kernel's log.
func log(line string) edit { return put("dev/kmsg", "6,0,0,-;Linux version\n4,1,9,-;"+line) }

// nodes are the NUMA nodes of functions.
var nodes = regexp.MustCompile(`numa_node=\d+`)

// checkCases has, for each check, a machine that makes it pass, one that makes
// it warn or fail, and one where it is unknown, as far as it can be each.
func checkCases() map[string][]checkCase {
	noLog := unreadable("dev/kmsg")
	noConfig := config("-")
	overwritten := put("dev/kmsg", "6,7,0,-;the first that is left")
	truncated := swap("type=6 ", "type=6 config=64 ")
	blind := swap("dma_mask_bits=64", "dma_mask_bits=64 config=64")
	blindGPU := swap("driver:amdgpu", "driver:amdgpu config=64")
	redirecting := swap("acs=0x00", "acs=0x1d")
	// The ACS of one port.
	acsOf := func(port, control string) edit {
		line := regexp.MustCompile(`(?m)^(\S*` + port + ` .*)acs=0x00`)
		return func(f *testenv.Tree) func(*testing.T, string) {
			f.Functions = line.ReplaceAllString(f.Functions, "${1}acs="+control)
			return nil
		}
	}
	intelOf := func(bridge string) []edit {
		return []edit{cpu(machinetest.Xeon), swap("vendor=0x1022 device=0x14a4", bridge)}
	}
	untrusted := intelOf("vendor=0x8086 device=0x1")
	const verbs, bnxt = "usr/lib64/libibverbs.so.1.14.50.0", "usr/lib64/libibverbs/libbnxt_re-rdmav34.so"
	noNIC := swap(" rdma:", " none:")
	nvidia := func(text string) edit { return swap("DmaRemapPeerMmio: 1", text) }
	closedNVIDIA := put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05")
	translating := swap(":identity", ":DMA-FQ")
	discrete := swap("vendor=0x10de device=0x2342", "vendor=0x10de device=0x2330") // an H100 in a host with Grace
	overridden := func(value string) edit {
		return swap("GrdmaPciTopoCheckOverride: 0", "GrdmaPciTopoCheckOverride: "+value)
	}
	// A machine of Ampere Computing's, by its root ports.
	ampereOf := func(device string) []edit {
		return []edit{cpu("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"), swap("vendor=0x8086 device=0x352a", "vendor=0x1def device="+device)}
	}
	noSizes := drop(amdGPU + "/resource0_resize")
	offers := swap("device=0x2330", "device=0x2330 rebar=0x60000") // 128 and 256 GiB
	const fabric = "opt/amazon/efa/lib64/pkgconfig/libfabric.pc"
	const plugins = "var/lib/kubelet/device-plugins"
	nccl := func(entry string) edit { return put("proc/self/environ", "A=b\x00"+entry+"\x00") }
	proprietary := func(f *testenv.Tree) func(*testing.T, string) {
		closedNVIDIA(f)
		return put("sys/module/nvidia/taint", "POE")(f)
	}
	const withMoves = machinetest.WithP2P + "CONFIG_DMABUF_MOVE_NOTIFY=y\n"
	// The ports of a card are in a bond, with one RDMA device.
	bonded := func(f *testenv.Tree) func(*testing.T, string) {
		put("sys/class/net/bond0/bonding/slaves", "eth8 eth9")(f)
		for _, i := range []string{"0", "3"} {
			put(hgxPort+"/gid_attrs/ndevs/"+i, "bond0")(f)
		}
		return nil
	}
	slingshotNIC := swap("vendor=0x15b3 device=0x1021 driver:mlx5_core", "vendor=0x1590 device=0x0371 driver:cxi_ss1")
	peermem := func(f *testenv.Tree) func(*testing.T, string) {
		put("sys/module/nvidia_peermem/version", "570")(f)
		return put("sys/kernel/mm/memory_peers/nv_mem/version", "1")(f)
	}
	const noSymbol = "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)"
	const mismatch = "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client"
	// A NIC below the port of a GPU that Grace caches, and in its group.
	beside := func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions += "pci0008:00/0008:00:00.0/0008:01:00.1 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core rdma:mlx5_9 group=1:DMA-FQ\n"
		return nil
	}
	oneGPU := func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions = strings.Replace(f.Functions, "driver:amdgpu", "driver:vgem", 1)
		return nil
	}
	yes := ibvfd.Support{DMABufKernel: ibvfd.Yes, Errno: unix.EBADF}
	no := ibvfd.Support{DMABufKernel: ibvfd.No, Errno: unix.EOPNOTSUPP, Remedy: "update"}
	other := errors.New("out of order")
	noNodes := func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions = nodes.ReplaceAllString(f.Functions, "numa_node=-1")
		return nil
	}
	virtualFunction := func(name string) edit { return text(amdNIC+"/physfn", name) }
	// A switch whose own link has that many lanes at most.
	uplink := func(lanes string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			put(wrongG+"/current_link_width", lanes)(f)
			return put(wrongG+"/max_link_width", lanes)(f)
		}
	}
	idleGPU := put(amdGPU+"/current_link_speed", "2.5 GT/s PCIe")
	noIPv4 := drop(aPort + "/gids/3")
	routedIPv6 := put(aPort+"/gids/3", "2001:0db8:0000:0000:0000:0000:0000:0001")
	noGID := func(f *testenv.Tree) func(*testing.T, string) {
		noIPv4(f)
		return put(aPort+"/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000")(f)
	}
	const aNode = amdNIC + "/infiniband/bnxt_re0/node_type"
	oneCard := func(f *testenv.Tree) func(*testing.T, string) { // of both NICs
		two := strings.NewReplacer("0000:12:03.0/0000:16:00.0", "0000:12:01.0/0000:14:00.1")
		f.Functions = two.Replace(f.Functions)
		for name, text := range maps.Clone(f.Files) {
			delete(f.Files, name)
			f.Files[two.Replace(name)] = text
		}
		return nil
	}
	// A function for direct data beside the GPUs' switch, and GPUs that only a NIC
	// which follows moves gets: it pins.
	const directDir = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:04.0"
	const otherNIC = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:03.0/0000:16:00.0"
	directCard := func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions += strings.TrimPrefix(directDir, "sys/devices/") + " class=0x080100 vendor=0x15b3 device=0x2100 driver:mlx5_ib\n"
		return nil
	}
	byVFIO7 := func(f *testenv.Tree) func(*testing.T, string) {
		swap("driver:nvidia", "driver:vfio-pci")(f)
		return put("sys/module/vfio_pci/taint", "")(f)
	}
	byGraceVFIO := swap("driver:nvidia", "driver:nvgrace-gpu-vfio-pci")
	vpd := func(dir, card string) edit {
		field := "V3" + string(rune(len(card))) + card
		return put(dir+"/vpd", "\x90"+string(rune(len(field)))+"\x00"+field+"\x78")
	}
	// The same below another host bridge, which no list of the kernel's has.
	const farDir = "sys/devices/pci0000:f0/0000:f0:01.0"
	farCard := func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions += "pci0000:f0/0000:f0:00.0 class=0x060000 vendor=0x8086 device=0x1\n" +
			strings.TrimPrefix(farDir, "sys/devices/") + " class=0x080100 vendor=0x15b3 device=0x2100 driver:mlx5_ib\n"
		return nil
	}
	cx8 := swap("device=0x1021", "device=0x1023")
	// The first NIC is a virtual function of the second.
	const ofNICs = "device=0x1021 "
	virtualOf := func(vf, pf string) edit {
		return func(f *testenv.Tree) func(*testing.T, string) {
			f.Functions = strings.Replace(strings.Replace(f.Functions, ofNICs, "device="+vf+" ", 1), ofNICs, "device="+pf+" ", 1)
			return text(amdNIC+"/physfn", "../0000:16:00.0")(f)
		}
	}
	const oPort = otherNIC + "/infiniband/bnxt_re1/ports/1"
	noneIPv4 := func(f *testenv.Tree) func(*testing.T, string) {
		noIPv4(f)
		return drop(oPort + "/gids/3")(f)
	}
	down, aDown, oDown := put("sys/class/net/eth0/operstate", "down"), put(aPort+"/state", "1: DOWN"), put(oPort+"/state", "1: DOWN")
	lends := text("sys/devices/pci0000:10/0000:10:01.0/physfn", "../0000:14:00.0")
	rnic := put(aNode, "4: RNIC")
	flat := func(want p2p.Result, edits ...edit) checkCase { return on("flat-vm", want, edits...) }

	// Kernels that pin for importers that follow moves, too; and NICs that do follow.
	pins := func(f *testenv.Tree) func(*testing.T, string) {
		f.Release, f.Config = "6.12.1", machinetest.WithP2P+"# "+machine.ConfigMoveNotify+" is not set\n"+machine.ConfigODP+"=y\n"
		return nil
	}
	follows := func(f *testenv.Tree) func(*testing.T, string) {
		swap("driver:bnxt_en", "driver:mlx5_core")(f)
		return put("sys/module/mlx5_ib/taint", "")(f)
	}

	return map[string][]checkCase{
		"KRN-VERSION":         {on("small-mi300", pass), on("small-mi300", warn, release("6.12.1")), on("small-mi300", fail, release("5.4.0")), on("small-mi300", unknown, release("5.4.0"), put("sys/module/ib_uverbs/taint", "OE")), on("small-mi300", unknown, release("5.4.0-100-generic")), on("small-hgx", pass, release("7.9.0")), on("small-mi300", unknown, release("7.9.0")), on("small-mi300", unknown, release("rolling")), on("small-mi300", unknown, release("4.18.0-553.el8.x86_64"))},
		"KRN-CONFIG-SRC":      {on("small-mi300", pass), on("small-mi300", warn, noConfig, put("lib/modules/7.2.12+deb13-amd64/config", machinetest.WithP2P), put("boot/vmlinuz", "")), on("small-mi300", unknown, noConfig, put("lib/modules/7.2.12+deb13-amd64/config", machinetest.WithP2P)), on("small-hgx", pass, noConfig, put("lib/modules/7.2.12+deb13-amd64/config", machinetest.WithP2P), put("boot/vmlinuz", "")), on("small-mi300", unknown, noConfig), on("small-mi300", unknown, config("nonsense"))},
		"KRN-CFG-P2PDMA":      {on("small-mi300", pass), on("small-mi300", fail, config(machinetest.WithoutP2P)), on("small-hgx", pass, config(machinetest.WithoutP2P)), on("small-mi300", unknown, noConfig)},
		"KRN-CFG-MOVE-NOTIFY": {on("small-mi300", pass), on("small-mi300", fail, pins, follows), on("small-mi300", unknown, noConfig, release("6.12.1"), follows), on("small-hgx", skip), on("small-mi300", skip, pins), on("small-mi300", skip, noConfig, release("6.12.1")), on("small-mi300", unknown, pins, put("sys/module/bnxt_re/taint", "OE")), on("small-mi300", skip, pins, noNIC)},
		"KRN-CFG-UVERBS":      {on("small-mi300", pass), on("small-mi300", fail, drop("sys/class/infiniband_verbs")), on("small-mi300", fail, drop("sys/class/infiniband_verbs"), config(machinetest.WithP2P)), on("small-mi300", unknown, drop("sys/class/infiniband_verbs/abi")), on("small-mi300", unknown, unreadable("sys/class/infiniband_verbs/abi_version")), on("small-mi300", unknown, put("sys/class/infiniband_verbs/abi_version", "")), on("small-mi300", unknown, put("sys/class/infiniband_verbs/abi_version", "\xff noise"))},
		"KRN-CFG-ODP":         {on("small-hgx", pass), on("small-hgx", fail, swap("CONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n", "")), on("small-hgx", fail, swap("CONFIG_INFINIBAND_ON_DEMAND_PAGING=y", "# CONFIG_INFINIBAND_ON_DEMAND_PAGING is not set")), on("small-hgx", unknown, noConfig), on("small-hgx", unknown, put("sys/module/mlx5_ib/taint", "OE")), on("small-mi300", skip)},
		"KRN-CFG-HSA-P2P":     {on("small-mi300", pass), on("small-mi300", warn, config(machinetest.WithP2P)), on("small-mi300", unknown, noConfig), on("small-hgx", skip)},
		"KRN-CFG-VFIO-DMABUF": {on("small-mi300", pass, byVFIO), on("small-mi300", fail, byVFIO, config(machinetest.WithP2P)), on("small-mi300", unknown, byVFIO, noConfig), on("small-hgx", pass, byGraceVFIO), on("small-hgx", fail, byGraceVFIO, config(machinetest.WithP2P)), on("case-13-vfio-host", skip), on("small-mi300", skip)},
		"KRN-CFG-DMABUF":      {on("small-mi300", pass), on("small-mi300", fail, swap("CONFIG_DMA_SHARED_BUFFER=y", "# CONFIG_DMA_SHARED_BUFFER is not set")), on("small-mi300", warn, config(machinetest.WithP2P)), on("small-mi300", unknown, noConfig)},
		"KRN-BTF":             {on("small-mi300", pass), on("small-mi300", warn, drop("sys/kernel/btf")), on("small-mi300", unknown, gone("sys/kernel"))},
		"KRN-TRACEPOINTS":     {on("small-mi300", pass), on("small-mi300", warn, drop("sys/kernel/tracing"), put("sys/kernel/tracing/events/sched/enable", "0")), on("small-mi300", unknown, drop("sys/kernel/tracing")), on("small-mi300", unknown, gone("sys/kernel"))},
		"KRN-LOCKDOWN":        {on("small-mi300", pass), on("small-mi300", warn, put("sys/kernel/security/lockdown", "none [integrity] confidentiality")), on("small-mi300", pass, drop("sys/kernel/security"), put("sys/kernel/security/lsm", "capability")), on("small-mi300", unknown, drop("sys/kernel/security")), on("small-mi300", unknown, put("sys/kernel/security/lockdown", "?"))},
		"KRN-CMDLINE":         {on("small-mi300", pass), on("small-mi300", pass, put("proc/cmdline", "quiet")), on("small-mi300", warn, put("proc/cmdline", "quiet pci=realloc,noats")), on("small-mi300", warn, put("proc/cmdline", "pcie_acs_override=downstream")), on("small-mi300", unknown, unreadable("proc/cmdline"))},
		"KRN-KMSG":            {on("small-mi300", pass), on("small-mi300", unknown, overwritten), on("small-mi300", fail, log("nvme 0000:13:00.0: cannot be used for peer-to-peer DMA as the client and provider (0000:14:00.0) do not share an upstream bridge or whitelisted host bridge")), on("small-mi300", warn, log("amdgpu 0000:13:00.0: to disable ACS redirect for this path, add the kernel parameter: pci=disable_acs_redir=0000:12:00.0")), on("small-mi300", pass, log("nvme 0000:99:00.0: ACS redirect is set between the client and provider (0000:98:00.0)")), on("small-hgx", fail, log("NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off the bus.")), on("small-hgx", warn, log("NVRM: Xid (PCI:0000:13:00): 31, pid=1, name=a, MMU Fault")), on("small-hgx", pass, log("NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.")), on("small-mi300", unknown, noLog)},
		"KRN-NUMA-BAL":        {on("small-mi300", pass), on("small-mi300", pass, drop("proc/sys/kernel/numa_balancing")), on("small-mi300", warn, put("proc/sys/kernel/numa_balancing", "1")), on("small-mi300", unknown, put("proc/sys/kernel/numa_balancing", "?")), on("small-mi300", unknown, unreadable("proc/sys/kernel/numa_balancing"))},

		"ENV-CFGSPACE":  {on("small-mi300", pass), on("small-mi300", warn, swap("type=6 ", "type=6 config=256 ")), on("small-mi300", unknown, truncated), on("small-mi300", unknown, unreadable(amdGPU+"/config"))},
		"ENV-CAPS":      {on("small-mi300", pass), on("small-mi300", warn, put("proc/self/status", "CapEff:\t000001ffffffdfff")), on("small-mi300", warn, put("proc/self/status", "CapEff:\t0000000000000000")), on("small-mi300", unknown, put("proc/self/status", "nothing")), on("small-mi300", unknown, unreadable("proc/self/status"))},
		"ENV-CONTAINER": {on("small-mi300", pass), on("small-mi300", warn, put(".dockerenv", "")), on("small-mi300", warn, put("proc/1/cgroup", "0::/kubepods/x")), on("small-mi300", warn, text("proc/self/ns/user", "user:[4026532000]")), on("small-mi300", warn, text("proc/self/ns/pid", "pid:[4026532000]")), on("small-mi300", pass, text("proc/self/ns/mnt", "mnt:[1]"), text("proc/1/ns/mnt", "mnt:[1]"), put("proc/self/mountinfo", machinetest.OverlayRoot)), on("small-mi300", warn, text("proc/self/ns/mnt", "mnt:[2]"), text("proc/1/ns/mnt", "mnt:[1]")), on("small-mi300", warn, put("proc/self/mountinfo", machinetest.OverlayRoot)), on("small-mi300", warn, put("proc/self/cgroup", "0::/../kubepods-x")), on("small-mi300", unknown, drop("proc/self/ns/pid"))},
		"ENV-VM":        {on("small-mi300", pass), flat(warn), on("grace", pass), on("grace", warn, put("sys/class/dmi/id/sys_vendor", "QEMU")), on("grace", unknown, put("sys/class/dmi/id/sys_vendor", "Example")), on("grace", unknown, put("sys/class/dmi/id/sys_vendor", "Amazon EC2")), on("grace", pass, put("sys/class/dmi/id/sys_vendor", "Amazon EC2"), put("sys/class/dmi/id/product_name", "g5g.metal")), on("grace", warn, put("sys/class/dmi/id/sys_vendor", "Nutanix")), on("small-mi300", unknown, cpu("-")), on("grace", unknown, drop("sys/class/dmi"))},
		"ENV-NETNS":     {on("small-mi300", pass), on("small-mi300", warn, noNIC, gone("sys/class/infiniband"), put("sys/module/ib_core/parameters/netns_mode", "N")), on("small-mi300", pass, noNIC, gone("sys/class/infiniband")), on("small-mi300", skip, noNIC, gone("sys/class/infiniband"), drop("sys/module/ib_core")), on("small-mi300", unknown, unreadable("sys/class/infiniband"))},

		"P2P-VERDICT":   {on("small-mi300", pass), on("hgx", pass), on("wrong-socket", warn), on("wrong-socket", pass, noNodes), on("small-mi300", fail, config(machinetest.WithoutP2P)), on("xe", fail), on("small-mi300", unknown, noConfig), on("small-mi300", unknown, append(intelOf("vendor=0x8086 device=0x1"), truncated)...), on("small-hgx", pass, config(machinetest.WithoutP2P)), on("grace", pass), on("wrong-socket", warn, swap("device=0x09a2", "device=0x1"))},
		"P2P-ACS-LIST":  {on("small-mi300", pass), on("small-hgx", pass, acsOf("0000:12:00.0", "0x04")), on("small-hgx", warn, acsOf("0000:12:01.0", "0x0c")), on("small-hgx", fail, acsOf("0000:12:01.0", "0x04")), on("small-mi300", warn, redirecting), on("small-mi300", fail, append(intelOf("vendor=0x8086 device=0x1"), redirecting)...), on("small-mi300", unknown, append(intelOf("vendor=0x8086 device=0x1"), truncated)...), on("xe", skip), flat(unknown)},
		"P2P-WHITELIST": {on("small-mi300", pass), on("small-hgx", pass), on("xe", warn), on("xe", unknown, release("8.1.0")), on("xe", unknown, cpu("-")), on("small-mi300", skip, untrusted...), on("small-mi300", warn, append(untrusted, redirecting)...), on("small-mi300", warn, append(untrusted, truncated)...), flat(warn)},
		"P2P-CACHE": {on("small-mi300", pass), on("small-mi300", warn, byVFIO), on("small-mi300", warn, put(amdGPU+"/p2pmem/size", "1")), on("small-mi300", unknown, unreadable(amdGPU+"/p2pmem")), on("small-hgx", pass), on("small-hgx", warn, byGraceVFIO),
			on("small-mi300", unknown, put("sys/module/amdgpu/taint", "OE")), on("small-mi300", unknown, swap("driver:amdgpu", "driver:other")), on("small-mi300", unknown, swap("driver:amdgpu", "none=x")), on("small-hgx", unknown, proprietary)},
		"P2P-NV-GATE": {on("small-hgx", pass, swap("GrdmaPciTopoCheckOverride: 0", "GrdmaPciTopoCheckOverride: 1")), on("wrong-socket", pass), flat(pass), on("wrong-socket", fail, overridden("2")), on("small-hgx", fail, overridden("2")), on("wrong-socket", unknown, overridden("3")),
			on("grace", skip), on("grace", unknown, discrete), on("grace", unknown, discrete, overridden("2")), on("grace", pass, discrete, overridden("1")),
			on("grace", fail, discrete, swap("device=0x22b1", "device=0x22b2")), on("grace", fail, discrete, swap("device=0x22b1", "device=0x22b2"), overridden("2")), on("grace", unknown, discrete, swap("device=0x22b1", "device=0x22b2"), put("sys/class/dmi/id/sys_vendor", "QEMU")),
			on("wrong-socket", fail, ampereOf("0xe100")...), on("wrong-socket", fail, ampereOf("0xe207")...), on("wrong-socket", pass, ampereOf("0xe208")...), on("small-hgx", pass, ampereOf("0xe100")...),
			on("wrong-socket", unknown, append(ampereOf("0xe208"), unreadable("sys/devices/pci0000:80/0000:80:01.0/device"))...),
			on("wrong-socket", fail, swap("driver:nvidia", "driver:softgpu behaviour=nvidia"), put("sys/module/softgpu/parameters/topology_gate", "Y")), on("small-mi300", skip)},
		"P2P-NV-FORCEPCIE": {on("grace", warn), on("grace", unknown, discrete, swap("0xd4f", "0xfff")), on("grace", skip, discrete, swap("0xd4f", "0xd0c")), on("grace", unknown, discrete, swap("implementer\t: 0x41", "implementer\t: 0x48")), on("grace", pass, swap("group=3:", "group=1:")), on("grace", pass, swap("group=", "none=")), on("grace", warn, gone("sys/devices/pci0009:00/*/*/iommu_group")), on("small-hgx", skip)},
		"P2P-DIST":         {on("small-mi300", pass), on("wrong-socket", warn), on("wrong-socket", unknown, swap("numa_node=1", "numa_node=-1")), on("wrong-socket", unknown, noNodes), on("wrong-socket", pass, noNodes, put("sys/devices/system/node/online", "0")), on("small-mi300", pass, noNodes), on("small-mi300", skip, noNIC)},
		"P2P-DMAMASK":      {on("small-mi300", pass), on("small-mi300", fail, swap("dma_mask_bits=64", "dma_mask_bits=44")), on("small-mi300", pass, swap("dma_mask_bits=64", "dma_mask_bits=44"), translating), on("small-mi300", unknown, swap("dma_mask_bits=64", "dma_mask_bits=-")), on("small-mi300", unknown, unreadable(amdNIC+"/dma_mask_bits")), on("small-mi300", unknown, swap("dma_mask_bits=64", "dma_mask_bits=44"), unreadable("sys/devices/*/*/*/*/*/resource"))},

		"ISO-IOMMU-MODE": {on("small-mi300", pass), on("xe", pass), on("small-mi300", warn, translating), on("small-mi300", fail, swap(":identity", ":blocked")), on("small-hgx", fail, translating, redirecting, nvidia("DmaRemapPeerMmio: 0"), release("6.6.1")), on("small-hgx", warn, translating, nvidia("DmaRemapPeerMmio: 0")), on("small-hgx", fail, translating, redirecting), on("small-hgx", warn, translating), on("small-hgx", warn, translating, redirecting, release("6.6.1")), on("small-mi300", unknown, unreadable("sys/kernel/iommu_groups/*/type")), on("small-mi300", unknown, unreadable(amdNIC+"/iommu_group"))},
		"ISO-ACS-SOURCE": {on("small-mi300", pass), on("small-mi300", warn, redirecting), on("xe", pass, redirecting), on("small-mi300", unknown, truncated)},
		"ISO-ACS-PORT":   {on("small-mi300", pass), on("small-mi300", unknown, swap("type=6 ", "type=6 config=256 ")), on("small-mi300", unknown, truncated), on("xe", unknown, swap("device=0x352a", "device=0xa110")), flat(skip)},
		"ISO-ACS-QUIRK":  {on("small-mi300", pass), on("xe", warn, swap("device=0x352a", "device=0xa110")), on("small-mi300", unknown, swap("type=6 vendor=0x1000", "type=6 vendor=odd")), flat(skip)},
		"ISO-ATS":        {on("small-hgx", pass), on("small-hgx", unknown, swap("type=6 ", "type=6 config=256 ")), on("small-hgx", pass, swap("acs=0x00", "acs=0x45"), swap("ats=0", "ats=0x8000")), on("small-hgx", unknown, swap("acs=0x00", "acs=0x4d"), swap("ats=0", "ats=0x8000")), on("small-hgx", pass, redirecting, translating, release("6.6.1")), on("grace", skip), on("small-hgx", fail, swap("acs=0x00", "acs=0x04")), on("small-hgx", warn, redirecting), on("small-hgx", unknown, blind), on("xe", skip), on("small-mi300", warn, redirecting), on("small-mi300", skip, append(untrusted, redirecting)...)},
		"ISO-RO":         {on("small-mi300", pass), on("wrong-socket", warn), on("wrong-socket", pass, swap("model\t\t: 143", "model\t\t: 63")), on("wrong-socket", pass, cpu(machinetest.Xeon)), on("small-mi300", warn, redirecting, swap("dma_mask_bits=64", "devctl=0x5040")), on("small-mi300", pass, swap("dma_mask_bits=64", "devctl=0x5040")), on("small-mi300", unknown, truncated, swap("dma_mask_bits=64", "devctl=0x5040")), on("small-mi300", unknown, blind)},
		"ISO-GROUP":      {on("small-mi300", pass), on("xe", pass), on("wrong-socket", pass, swap("class=", "group=1:DMA class=")), on("small-mi300", unknown, unreadable(amdNIC+"/iommu_group")), on("small-mi300", unknown, gone(amdNIC+"/iommu_group")), on("small-mi300", unknown, gone(amdGPU+"/iommu_group")), on("small-mi300", unknown, unreadable(amdGPU+"/iommu_group")), on("small-mi300", skip, swap("driver:amdgpu", "driver:vgem"), noNIC)},
		"ISO-ACS-PLAN":   {on("case-07-gb300-data-direct", pass), on("case-07-bad-acs", warn), on("case-07-gb300-data-direct", unknown, unreadable("sys/devices/pci0008:00/0008:00:00.0/config")), on("small-hgx", skip)},
		"ISO-GIVEN-AWAY": {on("case-13-vfio-host", warn), on("case-13-vfio-host", pass, swap("ats=0", "ats=0x8000"), swap("acs=0x1d", "acs=0x5d")), on("case-13-vfio-host", unknown, swap("ats=0", "ats=0x8000"), swap("acs=0x1d", "acs=0x5d"), unreadable("sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/config")), on("small-hgx", skip)},
		"ISO-FAULTS":     {on("small-mi300", pass), on("small-mi300", fail, log("DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0x200000001000 [fault reason 0x05] PTE Write access is not set")), on("small-mi300", warn, log("DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0xfb020000 [fault reason 0x05] PTE Write access is not set")), on("small-mi300", warn, log("DMAR: [DMA Read NO_PASID] Request device [13:00.0] fault addr 0xfb020000 [fault reason 0x06] PTE Read access is not set")), on("small-mi300", pass, log("DMAR: [DMA Read NO_PASID] Request device [99:00.0] fault addr 0x0")), on("small-mi300", fail, log("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:14:00.0 domain=0x1]")), on("small-mi300", unknown, log("arm-smmu-v3 arm-smmu-v3.2.auto: event 0x13 received:")), on("small-mi300", fail, log("arm-smmu-v3 arm-smmu-v3.2.auto: event: F_TRANSLATION client: 0000:14:00.0 sid: 0x1400 ssid: 0x0 iova: 0x200000001000 ipa: 0x0")), on("small-mi300", pass, log("arm-smmu-v3 arm-smmu-v3.2.auto: event: F_TRANSLATION client: 0000:99:00.0 sid: 0x1400 ssid: 0x0 iova: 0x1000 ipa: 0x0")), on("small-mi300", unknown, overwritten), on("small-mi300", unknown, noLog)},
		"ISO-INTERRUPT":  {on("small-mi300", pass, byVFIO), on("small-mi300", pass, byVFIO, put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N")), on("small-mi300", warn, byVFIO, put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y")), on("small-mi300", unknown, byVFIO, put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "?")), on("small-hgx", warn, byGraceVFIO, put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y")), on("small-mi300", skip)},

		"GPU-LIBRARY": {on("small-hgx", pass), on("small-mi300", pass), on("small-hgx", fail, swap("device=0x2330", "device=0x2b85"), put("proc/driver/nvidia/gpus/0000:13:00.0/information", "Model: NVIDIA GeForce RTX 5090")),
			on("small-hgx", unknown, swap("device=0x2330", "device=0xffff")), on("small-mi300", unknown, put(amdGPU+"/mem_info_vram_total", "?"), unreadable(amdGPU+"/resource")),
			on("small-hgx", skip, noNIC)},
		"PCIE-LINK":      {on("small-mi300", pass), on("small-mi300", warn, put(amdNIC+"/current_link_speed", "16.0 GT/s PCIe")), on("small-mi300", fail, put(amdNIC+"/current_link_width", "4")), on("small-mi300", warn, put(amdGPU+"/current_link_width", "8")), on("small-mi300", unknown, put(amdGPU+"/current_link_speed", "2.5 GT/s PCIe")), on("small-mi300", pass, uplink("8")), on("small-mi300", warn, uplink("8"), redirecting), on("small-mi300", unknown, truncated, put(path.Dir(amdGPU)+"/current_link_speed", "2.5 GT/s PCIe")), on("small-mi300", warn, log("bnxt_en 0000:14:00.0: 126 Gb/s available PCIe bandwidth, limited by 8.0 GT/s")), on("small-mi300", unknown, put(amdNIC+"/current_link_speed", "Unknown")), on("small-mi300", unknown, cpu(machinetest.Epyc+"flags\t: hypervisor x\n"), swap("family\t: 23", "family\t: 25\nflags\t: hypervisor x")), on("small-mi300", skip, swap("driver:amdgpu", "driver:vgem"), noNIC)},
		"PCIE-LINK-IDLE": {on("small-mi300", pass), on("small-mi300", unknown, idleGPU), on("small-mi300", unknown, idleGPU, put(amdGPU+"/aer_dev_correctable", "RxErr 0\nBadTLP 3\nTOTAL_ERR_COR 3")), on("small-mi300", unknown, idleGPU, put(path.Dir(amdGPU)+"/aer_dev_correctable", "Rollover 1\nTOTAL_ERR_COR 1")), on("small-mi300", unknown, idleGPU, put(amdGPU+"/aer_dev_correctable", "NonFatalErr 3\nTOTAL_ERR_COR 3")), on("small-mi300", unknown, put(amdGPU+"/current_link_width", "0"))},
		"PCIE-MPS":       {on("small-mi300", pass), on("small-mi300", warn, swap("dma_mask_bits=64", "devctl=0x5010")), on("small-mi300", warn, swap("class=", "devctl=0x5010 class=")), on("small-mi300", unknown, blind)},
		"PCIE-MRRS":      {on("small-mi300", pass), on("small-mi300", warn, swap("dma_mask_bits=64", "devctl=0x0050")), on("small-mi300", unknown, blind), on("small-mi300", skip, noNIC)},
		"PCIE-AER":       {on("small-mi300", pass), on("small-mi300", pass, put(amdNIC+"/aer_dev_correctable", "RxErr 7\nTOTAL_ERR_COR 7")), on("small-mi300", warn, put(amdNIC+"/aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1")), on("small-mi300", warn, log("pcieport 0000:12:00.0: AER: Corrected error received: 0000:13:00.0")), on("small-mi300", unknown, put(amdNIC+"/aer_dev_fatal", "?")), on("small-mi300", unknown, drop(amdNIC+"/aer_dev_")), on("small-mi300", unknown, unreadable(amdNIC+"/aer_dev_fatal"))},
		"PCIE-BAR-SIZE":  {on("small-mi300", pass), on("small-hgx", pass).with(memory(80<<30, nil)), on("small-hgx", warn).with(memory(141<<30, nil)), on("small-mi300", warn, put(amdGPU+"/resource", "0x20000000000 0x207ffffffff 0x14220c")), on("small-mi300", warn, put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c")), on("small-mi300", fail, put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c"), put(amdGPU+"/mem_info_vis_vram_total", "268435456")), on("small-hgx", unknown, put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c")), on("small-hgx", fail, put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c"), closedNVIDIA, put("sys/module/nvidia/taint", "POE")), on("small-hgx", unknown), on("xe", unknown), on("small-hgx", unknown).with(memory(0, other)), on("small-mi300", unknown, put(amdGPU+"/mem_info_vram_total", "?")), on("small-mi300", unknown, unreadable(amdGPU+"/resource"))},
		"PCIE-REBAR": {on("small-hgx", pass), on("small-mi300", pass), on("small-hgx", warn, put(amdGPU+"/resource0_resize", "0000000000040000")), on("small-hgx", unknown, put(amdGPU+"/resource0_resize", "many")), on("small-hgx", unknown, unreadable(amdGPU+"/resource0_resize")),
			on("small-hgx", pass, noSizes), on("small-hgx", warn, noSizes, offers), on("small-hgx", warn, noSizes, offers, release("5.15.1")), on("small-hgx", pass, noSizes, swap("device=0x2330", "device=0x2330 rebar=0x20000")),
			on("small-hgx", unknown, noSizes, swap("driver:nvidia", "driver:nvidia config=64")), on("small-hgx", unknown, noSizes, swap("driver:nvidia", "driver:nvidia config=256")), on("small-hgx", unknown, noSizes, unreadable(amdGPU+"/config"))},
		"PCIE-BAR-ASSIGNED": {on("small-mi300", pass), on("small-mi300", fail, put(amdGPU+"/resource", "0x0 0xffffffffff 0x14220c")), on("small-mi300", fail, put(amdGPU+"/resource", "0x0 0x0 0x0"), log("pci 0000:13:00.0: BAR 0 [mem size 0x4000000000 64bit pref]: can't assign; no space")), on("small-mi300", fail, put(amdGPU+"/resource", "0x80000000 0x80ffffff 0x40200\n0x0 0x0 0x0"), log("pci 0000:13:00.0: BAR 1: failed to assign [mem size 0x4000000000 64bit pref]\n4,2,9,-;pci 0000:15:00.0: BAR 0: failed to assign [mem size 0x1000]")), on("small-mi300", pass, log("pci 0000:13:00.0: BAR 0: failed to assign [mem size 0x4000000000 64bit pref]")), on("small-mi300", pass, put(amdGPU+"/resource", "0x80000000 0x80ffffff 0x40200\n0x0 0x0 0x0"), log("pci 0000:13:00.0: VF BAR 1 [mem size 0x4000000000 64bit pref]: can't assign; no space")), on("small-mi300", unknown, put(amdGPU+"/resource", "0x0 0x0 0x0")), on("small-mi300", unknown, put(amdGPU+"/resource", "?")), on("small-mi300", unknown, unreadable(amdGPU+"/resource"))},
		"PCIE-PM":           {on("small-mi300", pass), on("small-mi300", warn, put(amdGPU+"/power/runtime_status", "suspended")), on("small-mi300", warn, put(amdGPU+"/power/runtime_status", "suspended"), put(amdGPU+"/d3cold_allowed", "1")), on("small-mi300", unknown, put(amdGPU+"/power/runtime_status", "error")), on("small-mi300", pass, put(amdGPU+"/power/runtime_status", "unsupported")), on("small-mi300", unknown, put(amdGPU+"/power/runtime_status", "?")), on("small-mi300", unknown, unreadable(amdGPU+"/power/runtime_status"))},
		"PCIE-NUMA":         {on("small-mi300", pass), on("wrong-socket", warn), flat(unknown), flat(unknown, put("sys/devices/system/node/online", "0-1")), flat(pass, put("sys/devices/system/node/online", "0")), on("wrong-socket", unknown, swap("numa_node=0", "numa_node=-1")), on("wrong-socket", unknown, swap("numa_node=1", "numa_node=-1")), on("small-mi300", unknown, noNodes)},
		"PCIE-ATOMICS":      {on("small-mi300", pass), on("small-mi300", warn, swap("devctl2=0x40", "")), on("small-mi300", warn, swap("type=6 ", "type=6 devctl2=0x80 ")), on("small-mi300", unknown, blindGPU), on("small-hgx", skip)},
		"PCIE-VMD":          {on("small-mi300", pass), on("xe", warn, swap("pci0000:00/0000:00:0", "pci10000:00/10000:00:0"), swap("/0000:0", "/10000:0")), on("small-mi300", skip, swap("driver:amdgpu", "driver:vgem"), noNIC)},

		"GPU-DRIVER":      {on("small-mi300", pass), on("small-hgx", fail, dead(amdGPU)), on("small-hgx", pass), on("small-mi300", fail, swap("driver:amdgpu", "")), on("small-mi300", fail, swap("driver:amdgpu", "driver:nouveau")), on("small-mi300", fail, swap("driver:amdgpu", "driver:nouveau"), put("sys/module/nouveau/taint", "")), on("small-mi300", unknown, swap("driver:amdgpu", "driver:novel")), on("small-mi300", unknown, put("sys/module/amdgpu/taint", "OE"), put("sys/module/amdgpu/version", "6.10.5"))},
		"GPU-RENDER-PERM": {on("small-hgx", fail).with(refusing("/dev/nvidia1")), on("small-hgx", pass).with(refusing("/dev/nvidia7")), on("small-hgx", unknown, drop("proc/driver/nvidia/gpus/0000:13:00.0")).with(live(nil, yes, nil)), on("small-mi300", fail, put(amdGPU+"/accel/accel0/dev", "261:0")).with(refusing("/dev/accel/accel0")), on("small-hgx", pass).with(live(nil, yes, nil)), on("small-hgx", fail).with(live(unix.EACCES, yes, nil)), on("small-hgx", fail).with(live(unix.EPERM, yes, nil)), on("small-hgx", fail).with(live(unix.ENOENT, yes, nil)), on("small-hgx", unknown).with(live(unix.EIO, yes, nil)), on("small-hgx", skip)},
		"GPU-EXPORT":      {on("small-mi300", skip)}, "GPU-BO-LOCATION": {on("small-mi300", skip)},
		"GPU-EXPORTER-OPS": {on("small-mi300", pass), on("small-mi300", fail, release("6.12.1")), on("small-mi300", unknown, put("sys/module/amdgpu/taint", "OE")), on("xe", skip), on("xe", unknown, swap("driver:xe", "driver:softgpu behaviour=strange"))},

		"NV-MODTYPE":     {on("small-hgx", pass), on("small-hgx", warn, proprietary, peermem), on("small-hgx", fail, proprietary, put("sys/module/nvidia_peermem/version", "570")), on("small-hgx", fail, put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06"), put("sys/module/nvidia/taint", "POE")), on("small-hgx", unknown, put("proc/driver/nvidia/version", "?")), on("small-hgx", unknown, unreadable("proc/driver/nvidia/version")), on("small-mi300", skip)},
		"NV-DMABUF-ATTR": {on("small-hgx", unknown), on("small-hgx", pass).with(exports(check.Export{OK: true}, nil)), on("small-hgx", fail).with(exports(check.Export{Why: "proprietary"}, nil)), on("small-hgx", fail, proprietary).with(exports(check.Export{Why: "proprietary"}, nil)), on("small-hgx", warn, proprietary, peermem).with(exports(check.Export{Why: "proprietary"}, nil)), on("small-hgx", fail, peermem).with(exports(check.Export{Why: "too old"}, nil)), on("small-hgx", unknown).with(check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) { return nil, other }}), on("small-hgx", unknown).with(check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) { return nil, nil }}), on("small-mi300", skip)},
		"NV-CC":          {on("small-hgx", unknown), on("small-hgx", pass).with(confidential(false, nil)), on("small-hgx", fail).with(confidential(true, nil)), on("small-hgx", unknown).with(confidential(false, other)), on("small-mi300", skip)},
		"NV-P2P-CAPS":    {on("small-hgx", unknown), on("small-hgx", pass).with(reach("OK", nil)), on("small-hgx", warn).with(reach("chipset not supported", nil)), on("small-hgx", unknown).with(reach("OK", other)), on("small-hgx", unknown).with(check.Live{Peers: func() ([]check.Peer, error) { return nil, nil }}), on("grace", skip), on("small-mi300", skip)},
		"NV-PEERMEM": {on("small-hgx", pass), on("small-hgx", warn, put("sys/module/nvidia_peermem/version", "570")), on("small-hgx", pass, put("sys/module/nvidia_peermem/version", "570"), put("sys/kernel/mm/memory_peers/nv_mem/version", "1")), on("small-hgx", unknown, gone("sys/module")), on("small-mi300", skip),
			on("small-hgx", fail, closedNVIDIA, put("sys/module/nvidia/taint", "POE")), on("small-hgx", unknown, unreadable("proc/driver/nvidia/version")),
			on("small-hgx", fail, closedNVIDIA, put("sys/module/nvidia/taint", "POE"), put("sys/module/nvidia_peermem/version", "570")),
			on("small-hgx", pass, closedNVIDIA, put("sys/module/nvidia/taint", "POE"), put("sys/module/nvidia_peermem/version", "570"), put("sys/kernel/mm/memory_peers/nv_mem/version", "1")),
			on("small-hgx", warn, put("sys/module/nvidia_peermem/version", "570"), put("proc/kallsyms", "0 T ib_register_device\t[ib_core]")), on("small-hgx", warn, log(noSymbol)), on("small-hgx", fail, proprietary, log(noSymbol)), on("small-hgx", warn, log(mismatch)), on("small-hgx", fail, proprietary, log(mismatch)), on("small-hgx", pass, log(mismatch), peermem), on("small-hgx", pass, put("sys/module/ib_core/taint", "")), on("small-hgx", pass, put("sys/module/ib_core/taint", "OE"), put("sys/module/ib_core/version", "24.10-0.7.0")), on("small-hgx", fail, proprietary, put("sys/module/ib_core/taint", "OE")),
			on("small-hgx", warn, put("sys/module/nvidia_peermem/version", "570"), put("proc/kallsyms", "0 T ib_register_peer_memory_client\t[ib_core]\n0 T ib_register_device\t[ib_core]"))},
		"NV-PEERMEM-KMSG": {on("small-hgx", pass), on("small-hgx", warn, log("nvidia_peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing")), on("small-hgx", unknown, overwritten), on("small-hgx", unknown, noLog), on("small-mi300", skip)},
		"NV-BAR1": {on("small-hgx", unknown), on("small-hgx", warn, put(amdGPU+"/resource", "0x20000000000 0x2000fffffff 0x14220c")).with(check.Live{BAR1: func() (map[pciaddr.Addr]check.Usage, error) {
			return map[pciaddr.Addr]check.Usage{{Bus: 0x15}: {Total: 100, Used: 5}}, nil
		}}), on("small-hgx", unknown, drop(amdGPU+"/resource")), on("small-mi300", skip),
			on("small-hgx", warn).with(check.Live{BAR1: func() (map[pciaddr.Addr]check.Usage, error) {
				return map[pciaddr.Addr]check.Usage{{Bus: 0x13}: {Total: 100, Used: 95}, {Bus: 0x15}: {Total: 100, Used: 5}}, nil
			}}),
			on("small-hgx", pass).with(check.Live{BAR1: func() (map[pciaddr.Addr]check.Usage, error) {
				return map[pciaddr.Addr]check.Usage{{Bus: 0x13}: {Total: 100, Used: 5}, {Bus: 0x15}: {Total: 100, Used: 5}}, nil
			}}),
			on("small-hgx", unknown).with(check.Live{BAR1: func() (map[pciaddr.Addr]check.Usage, error) {
				return map[pciaddr.Addr]check.Usage{{Bus: 0x13}: {Total: 100, Used: 5}}, other
			}}),
			on("small-hgx", unknown).with(check.Live{BAR1: func() (map[pciaddr.Addr]check.Usage, error) { return nil, nil }})},
		"NV-PARAMS":   {on("small-hgx", pass), on("small-hgx", fail, translating, redirecting, nvidia("DmaRemapPeerMmio: 0")), on("small-hgx", fail, translating, redirecting, nvidia("DmaRemapPeerMmio: 0"), release("6.6.1")), on("small-hgx", fail, translating, redirecting), on("small-hgx", pass, translating, release("6.6.1")), on("small-hgx", warn, translating), on("small-hgx", unknown, translating, release("5.14.0-570.el9.x86_64")), on("small-hgx", warn, translating, nvidia("DmaRemapPeerMmio: 0")), on("small-hgx", unknown, nvidia("DmaRemapPeerMmio: 0"), unreadable("sys/kernel/iommu_groups/*/type")), on("small-hgx", unknown, put("proc/driver/nvidia/params", "?")), on("small-hgx", unknown, unreadable("proc/driver/nvidia/params")), on("small-hgx", unknown, translating, nvidia("DmaRemapMmio: 1")), on("small-hgx", unknown, translating, nvidia("DmaRemapPeerMmio: ?")), on("small-hgx", pass, nvidia("DmaRemapMmio: 1")), on("small-mi300", skip)},
		"NV-MIG":      {on("small-hgx", unknown, put("proc/driver/nvidia/capabilities/gpu0/mig/config", "x"), unreadable("proc/driver/nvidia/capabilities/gpu0/mig")), on("small-hgx", pass), on("small-hgx", warn, put("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "x")), on("small-hgx", unknown, unreadable("proc/driver/nvidia/capabilities")), on("small-mi300", skip)},
		"NV-COHERENT": {on("small-hgx", pass), on("grace", pass), on("grace", warn, beside), on("grace", pass, swap("0xd4f", "0xd0c")), on("grace", unknown, swap("0xd4f", "0xfff")), on("grace", unknown, swap("implementer\t: 0x41", "implementer\t: 0x48")), on("small-hgx", unknown, cpu("-")), on("small-mi300", skip)},

		"AMD-LARGEBAR":    {on("small-mi300", pass), on("small-mi300", fail, put(amdGPU+"/mem_info_vis_vram_total", "268435456")), on("small-mi300", unknown, drop(amdGPU+"/mem_info_vis")), on("small-mi300", unknown, put(amdGPU+"/mem_info_vram_total", "?")), on("small-hgx", skip)},
		"AMD-KFD-LINKS":   {on("small-mi300", pass), on("small-mi300", warn, drop("sys/class/kfd/kfd/topology/nodes/2/io_links")), on("small-mi300", unknown, put("sys/class/kfd/kfd/topology/nodes/2/gpu_id", "?")), on("small-mi300", unknown, unreadable("sys/class/kfd")), on("small-hgx", skip)},
		"AMD-PARAM":       {on("small-mi300", pass), on("small-mi300", pass, drop("sys/module/amdgpu/parameters")), on("small-mi300", warn, put("sys/module/amdgpu/parameters/pcie_p2p", "N")), on("small-mi300", pass, put("sys/module/amdgpu/parameters/pcie_p2p", "N"), oneGPU), on("small-mi300", unknown, put("sys/module/amdgpu/parameters/pcie_p2p", "?")), on("small-mi300", unknown, unreadable("sys/module/amdgpu/parameters/pcie_p2p")), on("small-hgx", skip)},
		"AMD-PEER-LEGACY": {on("small-mi300", pass), on("small-mi300", pass, put("sys/kernel/mm/memory_peers/amdkfd/version", "1")), on("small-mi300", unknown, gone("sys/kernel")), on("small-hgx", skip)},
		"AMD-DCC":         {on("small-mi300", pass), on("small-mi300", warn, swap("gfx_target_version 90402", "gfx_target_version 120001")), on("small-mi300", unknown, swap("gfx_target_version", "none")), on("small-mi300", unknown, unreadable("sys/class/kfd/kfd/topology/nodes/2/properties")), on("small-mi300", unknown, unreadable("sys/class/kfd")), on("small-hgx", skip)},
		"AMD-XGMI":        {on("small-mi300", pass), on("small-mi300", pass, swap("type 11", "type 2")), on("small-mi300", unknown, unreadable("sys/class/kfd")), on("small-hgx", skip)},

		"INTEL-I915":       {on("xe", fail, swap("driver:xe", "driver:i915"), put("sys/module/i915/taint", "")), on("xe", unknown, swap("driver:xe", "driver:i915"), put("sys/module/i915/taint", "OE")), on("xe", skip)},
		"INTEL-XE":         {on("xe", pass), on("xe", pass, release("6.12.1"), config(machinetest.WithP2P+"CONFIG_DMABUF_MOVE_NOTIFY=y\n")), on("xe", fail, release("6.12.1"), config(machinetest.WithoutP2P)), on("xe", unknown, release("6.18.1"), config(machinetest.WithoutP2P)), on("xe", unknown, put("sys/module/xe/taint", "O")), on("small-mi300", skip)},
		"INTEL-XE-VRAMBAR": {on("xe", pass), on("xe", warn, put("sys/module/xe/parameters/vram_bar_size", "256")), on("xe", warn, put("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/resource", "0x20000000000 0x2000fffffff 0x14220c")), on("xe", unknown, unreadable("sys/module/xe/parameters/vram_bar_size")), on("small-mi300", skip)},
		"HABANA":           {on("small-mi300", pass, swap("driver:amdgpu", "driver:habanalabs"), put("sys/module/habanalabs/taint", "")), on("xe", fail, swap("driver:xe", "driver:habanalabs"), put("sys/module/habanalabs/taint", "")), on("small-mi300", unknown, swap("driver:amdgpu", "driver:habanalabs"), put("sys/module/habanalabs/taint", "O")), on("small-mi300", skip)},
		"VFIO-EXPORT":      {on("small-hgx", pass, swap("driver:nvidia", "driver:vfio-pci"), put("sys/module/vfio_pci/taint", "")), on("small-mi300", fail, byVFIO, put("sys/module/vfio_pci/taint", "")), on("small-hgx", fail, swap("driver:nvidia", "driver:vfio-pci"), put("sys/module/vfio_pci/taint", ""), release("6.12.1")), on("small-hgx", unknown, swap("driver:nvidia", "driver:vfio-pci"), put("sys/module/vfio_pci/taint", ""), release("6.18.1")), on("small-hgx", pass, swap("driver:nvidia", "driver:nvgrace-gpu-vfio-pci"), put("sys/module/nvgrace_gpu_vfio_pci/taint", "")), on("small-hgx", unknown, swap("driver:nvidia", "driver:vfio-pci"), put("sys/module/vfio_pci/taint", "OE")), on("small-hgx", unknown, swap("driver:nvidia", "driver:vfio-pci")), on("small-hgx", skip)},
		"VIRTIO-GPU":       {on("small-mi300", warn, swap("driver:amdgpu", "driver:virtio_gpu")), on("small-mi300", skip)},
		"NOUVEAU":          {on("small-mi300", fail, swap("driver:amdgpu", "driver:nouveau")), on("small-mi300", fail, swap("driver:amdgpu", "driver:nouveau"), put("sys/module/nouveau/taint", "")), on("small-mi300", skip)},
		"QAIC-IVPU-XDNA":   {on("small-mi300", fail, swap("driver:amdgpu", "driver:qaic")), on("small-mi300", skip)},

		"NIC-PRESENT": {on("small-mi300", pass), on("small-mi300", unknown, gone("sys/class/infiniband")), on("small-mi300", fail, noNIC, drop(amdNIC+"/infiniband"), drop(otherNIC+"/infiniband"), gone("sys/class/infiniband")), on("small-mi300", unknown, unreadable("sys/class/infiniband")),
			on("small-mi300", warn, swap("rdma:bnxt_re1", "none:")), on("small-hgx", warn, swap("rdma:mlx5_1", "none:")), on("small-hgx", pass, swap("driver:mlx5_core", "driver:vfio-pci"), swap("rdma:mlx5_1", "none:")),
			on("small-mi300", unknown, unreadable(aPorts)), on("small-mi300", unknown, unreadable("sys/class/infiniband/bnxt_re0"))},
		"NIC-UVERBS":        {on("small-mi300", pass), on("small-mi300", warn).with(refusing("/rdma_cm")), on("small-mi300", fail).with(refusing("/uverbs0")), on("small-mi300", pass).with(live(nil, yes, nil)), on("small-mi300", fail, gone("sys/class/infiniband_verbs/uverbs0")), on("small-mi300", fail).with(live(unix.EACCES, yes, nil)), on("small-mi300", unknown).with(live(unix.EIO, yes, nil)), on("small-mi300", unknown, unreadable("sys/class/infiniband_verbs"))},
		"NIC-DRIVER-DMABUF": {on("small-mi300", pass), on("small-mi300", fail, swap("driver:bnxt_en", "driver:mlx4_core"), put("sys/module/mlx4_ib/taint", "")), on("small-mi300", unknown, put("sys/module/bnxt_re/taint", "OE"))},
		"NIC-DMABUF-PROBE":  {on("small-mi300", pass).with(live(nil, yes, nil)), on("small-mi300", fail).with(live(nil, no, nil)), on("small-mi300", unknown).with(live(nil, ibvfd.Support{Reason: "odd"}, nil)), on("small-mi300", unknown).with(live(nil, no, other)), on("small-mi300", skip)},
		"NIC-PROVIDER-LIB": {on("small-mi300", pass), on("small-mi300", warn, drop("usr/lib64"), put("usr/lib64/libibverbs.so.1.11.32.0", "")), on("small-mi300", warn, drop("usr/lib64"), put("usr/lib64/libc.so", "")), on("small-mi300", unknown, drop("usr/lib64")), on("small-mi300", unknown, drop("usr/lib64"), put("usr/lib64/libibverbs.so.1.x", "")),
			on("small-mi300", unknown, exactly(verbs, "")), on("small-mi300", unknown, unreadable(verbs)), on("small-mi300", unknown, put(verbs, "\xff noise")), on("small-mi300", pass, put(verbs, "\x7fELF")), on("small-mi300", pass, put(verbs, "lib%s-rdmav34.so"))},
		"NIC-MODE": {on("small-mi300", pass), on("small-mi300", unknown, put("sys/module/bnxt_re/taint", "OE")), on("small-mi300", skip, swap("driver:bnxt_en", "driver:mlx4_core"), put("sys/module/mlx4_ib/taint", ""))},
		"NIC-DATADIRECT": {on("small-hgx", unknown, unreadable(amdNIC+"/device")), on("small-hgx", pass), on("small-mi300", skip), on("small-hgx", pass, directCard), on("small-hgx", pass, swap("device=0x1021", "device=0x1023")),
			on("small-hgx", pass, directCard, swap("device=0x1021", "device=0x1023")), on("small-hgx", unknown, directCard, swap("device=0x1021", "device=0x1023"), byVFIO7),
			on("small-hgx", warn, directCard, swap("device=0x1021", "device=0x1023"), byVFIO7, vpd(amdNIC, "card"), vpd(otherNIC, "other"), vpd(directDir, "card")),
			on("small-hgx", pass, directCard, swap("device=0x1021", "device=0x1023"), byVFIO7, vpd(amdNIC, "a"), vpd(otherNIC, "b"), vpd(directDir, "c")),
			on("small-hgx", pass, directCard, swap("device=0x1021", "device=0x1023"), byVFIO7, swap("driver:mlx5_ib", "")),
			on("small-hgx", pass, directCard, byVFIO7), on("small-hgx", unknown, directCard, swap("device=0x1021", "device=0x101e"), byVFIO7),
			on("small-hgx", unknown, directCard, swap("device=0x1021", "device=0x1023"), swap("vendor=0x15b3 device=0x2100", "vendor=odd device=0x2100")),
			on("small-hgx", pass, swap("device=0x1021", "device=0x1023"), swap("vendor=0x1000", "vendor=odd")), // it is bound to no driver
			on("small-hgx", warn, farCard, cx8, vpd(amdNIC, "card"), vpd(otherNIC, "other"), vpd(farDir, "card")),
			on("small-hgx", pass, farCard, cx8, swap("acs=0x00", "acs=0x1d"), swap("device=0x09a2", "device=0x1"), vpd(amdNIC, "card"), vpd(otherNIC, "other"), vpd(farDir, "card")),
			on("small-hgx", unknown, farCard, cx8),
			on("small-hgx", pass, directCard, byVFIO7, virtualOf("0x101e", "0x1021")), on("small-hgx", unknown, directCard, byVFIO7, virtualOf("0x101e", "0x1023")),
			on("small-hgx", warn, directCard, byVFIO7, virtualOf("0x101e", "0x1023"), vpd(otherNIC, "card"), vpd(directDir, "card")),
			on("small-hgx", pass, directCard, byVFIO7, swap("device=0x1021", "device=0x1018")), on("small-hgx", unknown, directCard, byVFIO7, swap("device=0x1021", "device=0xa2d3")),
			// A sysfs that lists the functions of drivers is asked nothing of others.
			on("small-hgx", pass, cx8, swap("vendor=0x1000", "vendor=odd"), put("sys/bus/pci/drivers/mlx5_core/bind", "")),
			on("small-hgx", unknown, directCard, cx8, byVFIO7, put("sys/bus/pci/drivers/mlx5_core/bind", ""), text("sys/bus/pci/drivers/mlx5_ib/0000:12:04.0", "../../../../devices")),
			on("small-hgx", unknown, cx8, put("sys/bus/pci/drivers/mlx5_core/bind", ""), unreadable("sys/bus/pci/drivers/mlx5_ib"))},
		"NIC-LAG":       {on("small-hgx", pass), on("small-hgx", warn, bonded), on("small-hgx", unknown, drop(hgxPort+"/gids"), drop(hgxPort+"/gid_attrs")), on("small-hgx", warn, put("sys/kernel/debug/mlx5/0000:14:00.0/lag/state", "active")), on("small-hgx", pass, bonded, put("sys/kernel/debug/mlx5/0000:14:00.0/lag/state", "disabled")), on("small-hgx", warn, swap("rdma:mlx5_0", "rdma:mlx5_bond_0"))},
		"NIC-FABRIC":    {on("small-hgx", pass), on("small-hgx", warn, slingshotNIC), on("small-hgx", warn, slingshotNIC, noNIC), on("small-hgx", unknown, unreadable(amdNIC+"/vendor")), on("small-hgx", warn, swap("vendor=0x15b3 device=0x1021 driver:mlx5_core", "vendor=0x8086 device=0x24f0 driver:hfi1"))},
		"NIC-OFED":      {on("small-hgx", pass), on("small-hgx", warn, put("sys/module/mlx5_ib/taint", "OE"), put("sys/module/mlx5_ib/version", "24.10")), on("small-hgx", unknown, gone("sys/module/mlx5_ib"))},
		"NIC-EFA-GEN":   {on("small-mi300", unknown, swap("driver:bnxt_en", "driver:efa"), unreadable(amdNIC+"/device")), on("small-mi300", pass, swap("driver:bnxt_en", "driver:efa")), on("small-mi300", warn, swap("device=0x1760 driver:bnxt_en", "device=0xefa1 driver:efa")), on("small-mi300", skip)},
		"NIC-BNXT-FLAG": {on("small-mi300", pass), on("small-mi300", unknown, put("sys/kernel/mm/memory_peers/nv_mem/version", "1")), on("small-mi300", unknown, gone("sys/kernel")), on("small-hgx", skip)},
		"NIC-STATE":     {on("small-mi300", pass), on("small-mi300", warn, put(aPort+"/state", "1: DOWN")), on("small-mi300", unknown, unreadable(aPort+"/state")), on("small-mi300", unknown, drop(aPort))},
		"NIC-FW":        {on("small-mi300", pass), on("small-mi300", warn, put(amdNIC+"/infiniband/bnxt_re0/fw_ver", "1.2.3")), on("small-mi300", unknown, unreadable(amdNIC+"/infiniband/bnxt_re0/fw_ver")), on("small-mi300", skip, noNIC)},

		"NET-GID": {on("small-mi300", pass), on("small-mi300", fail, noneIPv4), on("small-mi300", warn, routedIPv6), on("small-mi300", fail, noneIPv4, put(aPort+"/gid_attrs/types/0", "IB/RoCE v1")), on("small-mi300", fail, drop(oPort+"/gids/3"), put(aPort+"/gid_attrs/types/3", "IB/RoCE v1")),
			on("small-mi300", warn, noIPv4), on("small-mi300", fail, noIPv4, oDown), on("small-mi300", fail, noIPv4, put(otherNIC+"/infiniband/bnxt_re1/parent", "eth1")),
			on("small-mi300", warn, noIPv4, put(oPort+"/link_layer", "InfiniBand")), on("small-mi300", warn, noneIPv4, put(otherNIC+"/infiniband/bnxt_re1/node_type", "4: RNIC")),
			on("small-mi300", pass, noIPv4, put(aPort+"/state", "1: DOWN")), on("small-mi300", unknown, noIPv4, put(aPort+"/state", "?")), on("small-mi300", unknown, noIPv4, unreadable(aPort+"/state")), on("small-mi300", unknown, noIPv4, unreadable(aNode)),
			on("small-mi300", pass, noIPv4, put(aNode, "4: RNIC")), on("small-mi300", warn, noIPv4, oDown, lends),
			on("small-mi300", unknown, drop(aPort+"/gids")), on("small-mi300", unknown, put(aPort+"/gid_attrs/types/3", "?")), on("small-mi300", skip, noNIC), on("small-mi300", skip, swap("Ethernet", "Unknown")), on("small-mi300", unknown, swap("Ethernet", "?"))},
		"NET-GID-NS": {on("small-mi300", pass), on("small-mi300", warn, noGID), on("small-mi300", warn, noGID, put(amdNIC+"/net/eth0/mtu", "9000"), put(".dockerenv", "")), on("small-mi300", fail, noGID, text("proc/self/ns/net", "net:[2]"), text("proc/1/ns/net", "net:[1]")), on("small-mi300", warn, noGID, text("proc/self/ns/net", "net:[1]"), text("proc/1/ns/net", "net:[1]")), on("small-mi300", fail, noGID, put(".dockerenv", "")), on("small-mi300", warn, noGID, put(".dockerenv", ""), put(aPort+"/state", "1: DOWN")), on("small-mi300", unknown, noGID, drop("proc/self/ns/pid")), on("small-mi300", unknown, drop(aPort+"/gids")),
			on("small-mi300", pass, noGID, put(".dockerenv", ""), rnic), on("small-mi300", unknown, noGID, put(".dockerenv", ""), unreadable(aNode))},
		"NET-LINK": {on("small-mi300", pass), on("small-mi300", warn, put("sys/class/net/eth0/mtu", "1500")), on("small-mi300", pass, put("sys/class/net/eth0/mtu", "4192")), on("small-mi300", warn, put("sys/class/net/eth0/mtu", "4191")), on("small-mi300", fail, put("sys/class/net/eth0/operstate", "down")), on("small-mi300", fail, put("sys/class/net/eth0/operstate", "lowerlayerdown")),
			on("small-mi300", warn, put("sys/class/net/eth0/operstate", "down"), oneCard), on("small-mi300", fail, swap("up\n", "down\n"), oneCard), on("small-mi300", pass, put("sys/class/net/eth0/operstate", "unknown")), on("small-mi300", unknown, put("sys/class/net/eth0/operstate", "unknown"), put(aPort+"/state", "1: DOWN")),
			on("small-mi300", unknown, put("sys/class/net/eth0/operstate", "dormant")), on("small-mi300", unknown, unreadable("sys/class/net/eth0/operstate")), on("small-mi300", unknown, put("sys/class/net/eth0/mtu", "?")),
			on("small-mi300", warn, down, aDown), on("small-mi300", fail, swap("up\n", "down\n"), aDown, oDown), on("small-mi300", warn, down, aDown, put(oPort+"/link_layer", "InfiniBand")),
			on("small-mi300", unknown, down, unreadable(aPort+"/state")), on("small-mi300", unknown, down, aDown, unreadable("sys/class/net/eth1/operstate")),
			on("small-mi300", warn, down, virtualFunction("../0000:16:00.0")), on("small-mi300", warn, down, lends),
			on("small-mi300", pass, put("sys/class/net/eth0/mtu", "1500"), rnic), on("small-mi300", fail, down, rnic)},
		"NET-MTU": {on("small-mi300", pass), on("small-mi300", warn, put("sys/class/net/eth0/mtu", "1500")), on("small-mi300", pass, put("sys/class/net/eth0/mtu", "4500")), on("small-mi300", unknown, put("sys/class/net/eth0/mtu", "?")), on("small-mi300", skip, noNIC), on("small-mi300", pass, put("sys/class/net/eth0/mtu", "1500"), rnic),
			on("small-mi300", pass).with(inPorts(nil, ibdev.PortActive, 4096, map[string]int{"bnxt_re0": 4096, "bnxt_re1": 4096})), on("small-mi300", warn).with(inPorts(nil, ibdev.PortActive, 4096, map[string]int{"bnxt_re0": 1024, "bnxt_re1": 4096})),
			on("small-mi300", pass).with(inPorts(nil, ibdev.PortActive, 1024, map[string]int{"bnxt_re0": 1024, "bnxt_re1": 1024})), on("small-mi300", pass).with(inPorts(nil, ibdev.PortDown, 4096, nil)),
			on("small-mi300", unknown).with(inPorts(other, 0, 0, nil)), on("small-mi300", pass).with(inPorts(check.ErrNotAsked, 0, 0, nil)),
			on("small-hgx", skip, swap("Ethernet", "InfiniBand")), on("small-hgx", skip, swap("Ethernet", "InfiniBand")).with(inPorts(nil, ibdev.PortDown, 4096, nil)),
			on("small-hgx", pass, swap("Ethernet", "InfiniBand")).with(inPorts(nil, ibdev.PortActive, 4096, map[string]int{"mlx5_0": 4096, "mlx5_1": 4096})),
			on("small-hgx", warn, swap("Ethernet", "InfiniBand")).with(inPorts(nil, ibdev.PortActive, 4096, map[string]int{"mlx5_0": 2048, "mlx5_1": 4096}))},
		"NET-PFC":      {on("small-mi300", pass), on("small-mi300", warn, put(aPort+"/hw_counters/out_of_sequence", "12")), on("small-mi300", warn, put(aPort+"/hw_counters/to_retransmits", "1")), on("small-mi300", pass, put(aPort+"/hw_counters/rnr_naks_rcvd", "1")), on("small-mi300", pass, put(aPort+"/hw_counters/out_of_sequence", "12"), put(aPort+"/state", "1: DOWN")), on("small-mi300", unknown, drop(aPort+"/hw_counters")), on("small-mi300", unknown, drop(aPort+"/hw_counters"), put(aPort+"/hw_counters/ip4InDiscards", "0")), on("small-mi300", warn, drop(aPort+"/hw_counters"), put(aPort+"/hw_counters/ip4InDiscards", "1")), on("small-mi300", unknown, unreadable(aPort+"/hw_counters")), on("small-mi300", unknown, put(aPort+"/hw_counters/out_of_sequence", "?")), on("small-mi300", warn, put(aPort+"/hw_counters/out_of_sequence", "?"), put(aPort+"/hw_counters/RTO", "2"))},
		"NET-IPV6LL":   {on("small-mi300", pass), on("small-mi300", pass, drop(aPort+"/gids/3"), rnic), on("small-mi300", warn, drop(aPort+"/gids/3")), on("small-mi300", unknown, drop(aPort+"/gids"))},
		"NET-SM":       {on("small-hgx", pass, swap("Ethernet", "InfiniBand"), swap("0x0\n", "0x7\n")), on("small-hgx", fail, swap("Ethernet", "InfiniBand")), on("small-hgx", unknown, swap("Ethernet", "InfiniBand"), swap("0x0\n", "0x7\n"), unreadable(hgxPort+"/sm_lid")), on("small-hgx", skip)},
		"NET-LOOPBACK": {on("small-mi300", skip)},

		"LIM-MEMLOCK":   {on("small-mi300", pass), on("small-mi300", fail, put("proc/self/limits", "Max locked memory         65536              65536              bytes"), text("proc/self/ns/user", "user:[4026532000]")), on("small-mi300", unknown, put("proc/self/limits", "Max locked memory         65536              65536              bytes"), drop("proc/self/ns/user")), on("small-mi300", pass, put("proc/self/limits", "Max locked memory         8388608              8388608              bytes")), on("small-mi300", fail, put("proc/self/limits", "Max locked memory         8388608              8388608              bytes"), put("proc/self/status", "CapEff:\t0")), on("small-mi300", warn, put("proc/self/limits", "Max locked memory         67108864             67108864             bytes"), put("proc/self/status", "CapEff:\t0")), on("small-mi300", warn, noNIC, put("proc/self/limits", "Max locked memory         8388608              8388608              bytes"), put("proc/self/status", "CapEff:\t0")), on("small-mi300", unknown, put("proc/self/limits", "?")), on("small-mi300", unknown, unreadable("proc/self/limits"))},
		"LIM-RDMA-CG":   {on("small-mi300", pass), on("small-mi300", pass, put("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2 hca_object=max"), put("sys/fs/cgroup/user.slice/rdma.current", "mlx5_0 hca_handle=1 hca_object=9")), on("small-mi300", fail, put("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2"), put("sys/fs/cgroup/user.slice/rdma.current", "mlx5_0 hca_handle=2")), on("small-mi300", unknown, put("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2")), on("small-mi300", fail, put("proc/self/cgroup", "0::/user.slice/job"), put("sys/fs/cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2"), put("sys/fs/cgroup/user.slice/rdma.current", "mlx5_0 hca_handle=2"), put("sys/fs/cgroup/user.slice/job/rdma.max", "mlx5_0 hca_handle=max"), put("sys/fs/cgroup/user.slice/job/rdma.current", "mlx5_0 hca_handle=1")), on("small-mi300", unknown, unreadable("proc/self/cgroup")), on("small-mi300", unknown, put("proc/self/cgroup", "0::/../kubepods-x")), on("small-mi300", skip, put("proc/self/cgroup", "4:memory:/x"))},
		"LIM-DEVICE-CG": {on("small-mi300", pass).with(live(nil, yes, nil)), on("small-mi300", fail).with(live(unix.EPERM, yes, nil)), on("small-mi300", skip).with(live(unix.ENOENT, yes, nil)), on("small-mi300", skip)},

		"CTR-LIBS":     {on("small-mi300", pass), on("small-mi300", unknown, put("usr/local/lib/libibverbs.so.1.14.50.0", "lib%s-rdmav60.so")), on("small-mi300", pass, text("lib64", "usr/lib64")), on("small-mi300", warn, drop("etc/libibverbs.d/bnxt")), on("small-mi300", unknown, gone("etc")), on("small-mi300", warn, drop(bnxt)), on("small-mi300", warn, drop(bnxt), put("usr/lib64/libibverbs/libbnxt_re-rdmav59.so", "")), on("small-mi300", pass, drop(bnxt), put("usr/lib64/libbnxt_re-rdmav34.so", "")), on("small-mi300", pass, put(verbs, "lib%s-rdmav59.so"), put("usr/lib64/libibverbs/libbnxt_re-rdmav59.so", "")), on("small-mi300", unknown, put(verbs, "")), on("small-mi300", unknown, unreadable(verbs)), on("small-mi300", unknown, drop("usr/lib64")), on("small-mi300", unknown, put("usr/local/lib/libibverbs.so.1.15.60.0", "lib%s-rdmav60.so")), on("small-mi300", unknown, drop(bnxt), text(bnxt, "../libbnxt_re.so.1")), on("small-mi300", pass, drop(bnxt), text(bnxt, "../libbnxt_re.so.1"), put("usr/lib64/libbnxt_re.so.1", "")), on("small-mi300", skip, noNIC)},
		"CTR-SHM":      {on("small-mi300", pass), on("small-mi300", warn, swap("size=131072000k", "size=65536k")), on("small-mi300", warn, swap("size=131072000k", "size=1000k")), on("small-mi300", pass, swap("size=131072000k", "size=65540k")), on("small-mi300", pass, swap("size=131072000k", "size=0k")), on("small-mi300", pass, swap(",size=131072000k", "")), on("small-mi300", unknown, swap("size=131072000k", "size=much")), on("small-mi300", warn, swap("/dev/shm", "/mnt")), on("small-mi300", unknown, put("proc/self/mountinfo", "")), on("small-mi300", unknown, unreadable("proc/self/mountinfo"))},
		"CTR-SYSFS":    {on("small-mi300", pass), on("small-mi300", warn, swap("/dev/shm", "/proc/kcore")), on("small-mi300", unknown, put("proc/self/mountinfo", "")), on("small-mi300", unknown, unreadable("proc/self/mountinfo"))},
		"K8S-PLUGIN":   {on("small-mi300", pass), on("small-mi300", warn, drop("etc/cdi"), put(plugins+"/kubelet.sock", "")), on("small-mi300", pass, drop("etc/cdi"), put(plugins+"/kubelet.sock", ""), put(plugins+"/nvidia-gpu.sock", "")), on("small-mi300", pass, put(plugins+"/kubelet.sock", "")), on("small-mi300", unknown, drop("etc/cdi"), unreadable(plugins)), on("small-mi300", pass, drop("etc/cdi")), on("small-mi300", unknown, gone("etc"), gone("run"), gone("var"))},
		"K8S-PCIEROOT": {on("small-mi300", unknown, unreadable(amdNIC+"/device")), on("small-mi300", pass), on("small-mi300", skip, swap("driver:amdgpu", "driver:vgem"), noNIC)},

		"VM-FLAT":  {flat(warn), on("small-mi300", skip), on("small-mi300", unknown, cpu("-")), on("small-hgx", pass, swap("flags\t\t: ", "flags\t\t: hypervisor "))},
		"VM-ACS":   {flat(warn), flat(skip, noNIC), on("small-mi300", skip), on("small-mi300", unknown, cpu("-"))},
		"VM-BAR64": {flat(pass), flat(fail, put("sys/devices/pci0000:00/0000:00:03.0/resource", "0x0 0x1fffffffff 0x14220c")), flat(unknown, unreadable("sys/devices/pci0000:00/0000:00:03.0/resource")), on("small-mi300", skip)},
		"VM-IOMMU": {flat(pass), flat(warn, swap("class=", "group=1:DMA class=")), flat(unknown, swap("class=", "group=1: class=")), on("small-mi300", skip), on("small-mi300", unknown, cpu("-"))},
		"VF-PATH":  {on("small-mi300", unknown, virtualFunction("../0000:14:00.1"), unreadable(amdNIC+"/physfn")), on("small-mi300", pass, virtualFunction("../0000:14:00.1")), on("small-mi300", skip)},
		"VF-TRUST": {on("small-mi300", pass, virtualFunction("../0000:14:00.1")), on("small-mi300", skip, virtualFunction("../0000:14:00.1"), swap("driver:bnxt_en", "driver:mlx4_core"), put("sys/module/mlx4_ib/taint", "")), on("small-mi300", unknown, virtualFunction("../0000:14:00.1"), put("sys/module/bnxt_re/taint", "OE")), on("small-hgx", unknown, virtualFunction("../0000:14:00.1")), on("small-hgx", unknown, swap("device=0x1021", "device=0x101e")),
			on("small-hgx", pass, virtualFunction("../0000:14:00.1")).with(live(nil, yes, nil)), on("small-hgx", warn, virtualFunction("../0000:14:00.1")).with(live(nil, no, nil)), on("small-hgx", unknown, virtualFunction("../0000:14:00.1")).with(live(nil, no, other)), on("small-hgx", unknown, virtualFunction("../0000:14:00.1")).with(live(nil, ibvfd.Support{Reason: "odd"}, nil)), on("small-mi300", skip)},

		"LIB-MOVENOTIFY": {on("small-mi300", warn), on("small-mi300", pass, put("proc/self/environ", "RCCL_FORCE_ENABLE_DMABUF=1")), on("small-mi300", warn, put("proc/self/environ", "RCCL_FORCE_ENABLE_DMABUF=0")), on("small-mi300", pass, config(withMoves)), on("small-mi300", unknown, noConfig), on("small-hgx", skip),
			on("small-mi300", warn, noConfig, put("usr/lib/modules/7.2.12+deb13-amd64/config", withMoves), put("boot/vmlinuz", "")), on("small-mi300", unknown, noConfig, put("usr/lib/modules/7.2.12+deb13-amd64/config", withMoves))},
		"LIB-NCCL-ENV": {on("small-hgx", pass, nccl("NCCL_IB_HCA=mlx5")), on("small-hgx", pass, nccl("NCCL_IB_HCA==mlx5_0:1,mlx5_1")), on("small-hgx", pass, nccl("NCCL_IB_HCA=^mlx5_1")), on("small-hgx", warn, nccl("NCCL_IB_HCA=^mlx5")), on("small-hgx", warn, nccl("NCCL_IB_HCA==mlx5")), on("small-hgx", warn, nccl("NCCL_IB_HCA=ibp1")), on("small-mi300", pass, noNIC, nccl("NCCL_IB_HCA=ibp1")),
			on("small-hgx", pass, nccl("NCCL_IB_GID_INDEX=3")), on("small-hgx", pass, nccl("NCCL_IB_GID_INDEX=-1")), on("small-hgx", warn, nccl("NCCL_IB_GID_INDEX=5")), on("small-hgx", warn, nccl("NCCL_IB_GID_INDEX=0")), on("small-hgx", warn, nccl("NCCL_IB_GID_INDEX=3"), put(hgxPort+"/gid_attrs/types/3", "IB/RoCE v1")),
			on("small-hgx", pass, nccl("NCCL_IB_GID_INDEX=3\x00NCCL_IB_HCA=mlx5_1"), put(hgxPort+"/gid_attrs/types/3", "IB/RoCE v1")), on("small-hgx", unknown, nccl("NCCL_IB_GID_INDEX=3"), unreadable(hgxPort+"/gids")),
			on("small-hgx", pass), on("small-hgx", pass, put("proc/self/environ", "")), on("small-mi300", warn), on("small-mi300", pass, nccl("NCCL_DMABUF_ENABLE=1")), on("small-mi300", fail, swap("driver:bnxt_en", "driver:efa"), nccl("NCCL_NET=IB")), on("small-mi300", warn, put("proc/self/environ", "A=b\x00NCCL_DMABUF_ENABLE=0\x00C=d")), on("small-mi300", unknown, unreadable("proc/self/environ"))},
		"LIB-NCCL-LEVEL": {on("small-mi300", pass), on("wrong-socket", warn), on("wrong-socket", pass, put("proc/self/environ", "NCCL_NET_GDR_LEVEL=SYS\x00")), on("wrong-socket", pass, put("proc/self/environ", "NCCL_NET_GDR_LEVEL=4\x00")), on("wrong-socket", unknown, unreadable("proc/self/environ")), on("small-mi300", warn, put("proc/self/environ", "NCCL_NET_GDR_LEVEL=FAR\x00")), on("small-mi300", skip, noNIC), on("grace", warn), on("grace", pass, nccl("NCCL_NET_GDR_C2C=1")), on("grace", pass, nccl("NCCL_NET_GDR_LEVEL=PHB")), on("grace", warn, nccl("NCCL_NET_GDR_C2C=0"))},
		"LIB-UCX-ENV": {on("small-hgx", pass), on("small-hgx", pass, nccl("UCX_TLS=rc,cuda")), on("small-hgx", warn, nccl("UCX_IB_GPU_DIRECT_RDMA=n")), on("small-hgx", fail, proprietary, nccl("UCX_IB_GPU_DIRECT_RDMA=y")), on("small-hgx", warn, nccl("UCX_NET_DEVICES=mlx5_7:1")), on("small-hgx", warn, bonded), on("small-hgx", pass, bonded, nccl("UCX_TLS=^gga_mlx5")), on("small-hgx", unknown, unreadable("proc/self/environ")),
			on("wrong-socket", warn), on("wrong-socket", pass, nccl("UCX_RNDV_SCHEME=get_zcopy\x00UCX_IB_PCI_RELAXED_ORDERING=y"))},
		"LIB-FABRIC-ENV":   {on("small-hgx", pass), on("small-hgx", warn, nccl("FI_HMEM_DISABLE_P2P=1")), on("small-hgx", fail, nccl("FI_VERBS_USE_DMABUF=0")), on("small-hgx", pass, peermem, nccl("FI_VERBS_USE_DMABUF=0")), on("small-hgx", warn, nccl("OFI_NCCL_DISABLE_DMABUF=1")), on("small-hgx", unknown, unreadable("proc/self/environ"))},
		"LIB-NIXL-ENV":     {on("small-hgx", pass), on("small-hgx", unknown, nccl("NIXL_PLUGIN_DIR=/opt/plugins")), on("small-mi300", warn, swap("driver:bnxt_en", "driver:efa"), nccl("NIXL_LIBFABRIC_MAX_BW_PER_DRAM_SEG=many"))},
		"LIB-MOONCAKE-ENV": {on("small-hgx", pass), on("small-hgx", fail, nccl("WITH_NVIDIA_PEERMEM=1")), on("small-hgx", pass, nccl("WITH_NVIDIA_PEERMEM=0")), on("small-hgx", pass, peermem, nccl("WITH_NVIDIA_PEERMEM=1")), on("small-hgx", warn, nccl("MC_FORCE_TCP=0")), on("small-hgx", unknown, nccl("MC_TENT_CONF=/etc/tent.json"))},
		"LIB-PYTORCH-ENV":  {on("small-hgx", pass, nccl("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")), on("small-hgx", warn, nccl("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\x00MC_GID_INDEX=3")), on("small-hgx", warn, proprietary, peermem, nccl("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")), on("small-hgx", unknown, unreadable("proc/self/environ"))},
		"LIB-NVSHMEM-ENV":  {on("small-hgx", pass), on("small-hgx", fail, nccl("NVSHMEM_IB_DISABLE_DMABUF=1")), on("small-hgx", warn, nccl("NVSHMEM_HCA_PREFIX=ibp")), on("small-hgx", unknown, unreadable("proc/self/environ"))},
		"LIB-MSCCLPP-ENV":  {on("small-hgx", pass), on("small-hgx", pass, nccl("MSCCLPP_HCA_DEVICES=mlx5_0,mlx5_1\x00MSCCLPP_IB_GID_INDEX=3")), on("small-hgx", warn, nccl("MSCCLPP_HCA_DEVICES=mlx5_0,mlx5_1")), on("small-hgx", fail, nccl("MSCCLPP_HCA_DEVICES=mlx5_0")), on("small-hgx", unknown, unreadable("proc/self/environ"))},
		"LIB-UCX":          {on("small-mi300", pass), on("small-mi300", warn, drop("dev/kfd")), on("small-mi300", skip, drop("dev/kfd"), swap("driver:amdgpu", "driver:vgem")), on("small-mi300", unknown, gone("dev"))},
		"LIB-AWS-OFI":      {on("small-mi300", pass, swap("driver:bnxt_en", "driver:efa"), put(fabric, "Name: libfabric\nVersion: 1.22.0amzn1.0")), on("small-mi300", warn, swap("driver:bnxt_en", "driver:efa"), put(fabric, "Version: 1.19.0amzn2.0")), on("small-mi300", unknown, swap("driver:bnxt_en", "driver:efa"), put(fabric, "Version: odd")), on("small-mi300", unknown, swap("driver:bnxt_en", "driver:efa")), on("small-mi300", warn, swap("driver:bnxt_en", "driver:efa"), release("5.4.1")), on("small-mi300", unknown, swap("driver:bnxt_en", "driver:efa"), release("?")), on("small-mi300", skip)},
		"LIB-PERFTEST":     {on("small-mi300", warn, config(machinetest.WithoutP2P)), on("small-mi300", unknown, noConfig), on("small-mi300", skip, noNIC), on("small-mi300", pass), on("small-hgx", pass), on("xe", skip)},

		// proof_test.go has the others of these.
		"ACT-EXPORT": {on("xe", skip)}, "ACT-REG": {on("xe", skip)}, "ACT-TRACE": {on("xe", skip)}, "ACT-PREDICTION": {on("xe", skip)},
		"ACT-WRITE": {on("xe", skip)}, "ACT-READ": {on("xe", skip)}, "ACT-ORDER": {on("xe", skip)}, "ACT-FAULTWATCH": {on("xe", skip)},
		"ACT-BW": {on("xe", skip)}, "ACT-MIGRATE": {on("xe", skip)}, "ACT-CLEANUP": {on("xe", skip)},
	}
}
