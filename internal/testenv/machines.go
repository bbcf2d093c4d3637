// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"maps"
	"path"
	"strings"
)

// Machines are servers of known shapes, made up from what such servers are
// built of. Each has all that p2pcheck reads.
var Machines = map[string]func() Tree{
	"hgx":          HGX,
	"wrong-socket": WrongSocket,
	"grace":        GraceHopper,
	"mi300":        MI300,
	"xe":           Xe,
	"small-hgx":    func() Tree { return hgx(1) },
	"small-mi300":  func() Tree { return mi300(1) },
	"flat-vm":      FlatVM,
}

// server is a Tree in the making.
type server struct {
	Tree
	gpus, nics, groups int
	iommu              string // the type of each group; "": no IOMMU
}

const (
	intelCPU = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu vme de pse\n\n"
	amdCPU   = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: fpu vme de pse\n\n"
	graceCPU = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
)

// fullConfig is what a kernel for such servers is built with.
const fullConfig = WithP2PDMA + "CONFIG_SYNC_FILE=y\nCONFIG_INFINIBAND_USER_ACCESS=m\n" +
	"CONFIG_HSA_AMD_P2P=y\nCONFIG_VFIO_PCI_DMABUF=y\n"

func newServer(cpu, product string) *server {
	s := &server{Tree: Tree{CPU: cpu, Config: fullConfig, Links: map[string]string{}}}
	s.Files = map[string]string{
		"proc/cmdline":                               "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n",
		"proc/sys/kernel/numa_balancing":             "0\n",
		"proc/sys/vm/overcommit_memory":              "0\n", // every kernel has these two
		"sys/class/mem/null/dev":                     "1:3\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"proc/self/status":                           "Name:\tp2pcheck\nCapEff:\t000001ffffffffff\n",
		"proc/self/limits":                           "Max locked memory         unlimited            unlimited            bytes\n",
		"proc/self/cgroup":                           "0::/user.slice\n",
		"proc/self/environ":                          "PATH=/bin\x00NCCL_DEBUG=INFO\x00",
		"proc/self/mountinfo":                        "24 1 0:22 / /dev/shm rw - tmpfs tmpfs rw,size=131072000k\n",
		"proc/1/cgroup":                              "0::/init.scope\n",
		"sys/kernel/btf/vmlinux":                     "BTF\n",
		"sys/kernel/tracing/events/dma_buf/enable":   "0\n",
		"sys/kernel/security/lockdown":               "[none] integrity confidentiality\n",
		"sys/class/dmi/id/sys_vendor":                "Supermicro\n",
		"sys/class/dmi/id/product_name":              product + "\n",
		"sys/class/infiniband_verbs/abi_version":     "6\n",
		"sys/module/ib_core/parameters/netns_mode":   "Y\n",
		"sys/fs/cgroup/user.slice/cgroup.procs":      "1\n",
		"dev/kmsg":                                   "6,0,0,-;Linux version\n",
		"etc/libibverbs.d/mlx5.driver":               "driver mlx5\n",
		"etc/libibverbs.d/bnxt_re.driver":            "driver bnxt_re\n",
		"etc/cdi/gpu.yaml":                           "",
		"usr/lib64/libibverbs.so.1.14.50.0":          "\x7fELF\x00lib%s-rdmav34.so\x00/usr/lib64/libibverbs/lib%s-rdmav34.so\x00",
		"usr/lib64/libibverbs/libmlx5-rdmav34.so":    "",
		"usr/lib64/libibverbs/libbnxt_re-rdmav34.so": "",
		"run/systemd/private":                        "",
		"var/lib/systemd/random-seed":                "",
	}
	s.Texts = map[string]string{"proc/self/ns/user": "user:[4026531837]", "proc/self/ns/pid": "pid:[4026531836]"}
	return s
}

// function adds a PCI function, and returns its directory below devices/.
func (s *server) function(dir, format string, args ...any) string {
	attrs := fmt.Sprintf(format, args...)
	if s.iommu != "" {
		attrs += fmt.Sprintf(" group=%d:%s", s.groups, s.iommu)
		s.groups++
	}
	s.Functions += dir + " " + attrs + "\n"
	if !strings.Contains(s.CPU, "hypervisor") { // guests' ports count no errors
		for kind, total := range map[string]string{"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"} {
			s.Files["sys/devices/"+dir+"/aer_dev_"+kind] = "TOTAL_ERR_" + total + " 0\n"
		}
	}
	return dir
}

func (s *server) module(name, taint, version string) {
	s.Files["sys/module/"+name+"/taint"] = taint + "\n"
	if version != "" {
		s.Files["sys/module/"+name+"/version"] = version + "\n"
	}
}

// Links as sysfs writes them.
const (
	gen5 = "current_link_speed=32.0_GT/s_PCIe current_link_width=16 max_link_speed=32.0_GT/s_PCIe max_link_width=16"
	gen4 = "current_link_speed=16.0_GT/s_PCIe current_link_width=16 max_link_speed=16.0_GT/s_PCIe max_link_width=16"
)

// device is a GPU or NIC model.
type device struct {
	attrs string
	bar   uint64 // bytes
	files map[string]string
	nic   string // the RDMA device's prefix, of a NIC
	board string
}

var (
	h100 = device{attrs: "class=0x030200 vendor=0x10de device=0x2330 driver:nvidia " + gen5, bar: 128 << 30, files: map[string]string{"resource0_resize": "0000000000020000\n"}}
	gh   = device{attrs: "class=0x030200 vendor=0x10de device=0x2342 driver:nvidia " + gen5, bar: 128 << 30, files: map[string]string{"resource0_resize": "0000000000020000\n"}}
	mi3  = device{attrs: "class=0x120000 vendor=0x1002 device=0x74a1 devctl2=0x40 driver:amdgpu " + gen5, bar: 256 << 30, files: map[string]string{"mem_info_vram_total": "206141652992\n", "mem_info_vis_vram_total": "206141652992\n"}}
	bmg  = device{attrs: "class=0x030000 vendor=0x8086 device=0xe20b driver:xe " + gen4, bar: 16 << 30, files: map[string]string{"resource0_resize": "0000000000007f00\n"}}
	cx7  = device{attrs: "class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core dma_mask_bits=64 " + gen5, nic: "mlx5_", board: "MT_0000000838"}
	thor = device{attrs: "class=0x020000 vendor=0x14e4 device=0x1760 driver:bnxt_en dma_mask_bits=64 " + gen5, nic: "bnxt_re", board: "BCM957608"}
)

// put adds a device on a NUMA node below a port.
func (s *server) put(dir string, d device, node int) {
	attrs := fmt.Sprintf("%s numa_node=%d ats=0", d.attrs, node)
	if d.nic == "" {
		s.function(dir, "%s", attrs)
		start := uint64(0x20_0000_0000_00) + uint64(s.gpus)<<40
		s.Files["sys/devices/"+dir+"/resource"] = fmt.Sprintf("%#x %#x 0x14220c\n", start, start+d.bar-1)
		for name, text := range d.files {
			s.Files["sys/devices/"+dir+"/"+name] = text
		}
		s.Files["sys/devices/"+dir+"/power/runtime_status"] = "active\n"
		if strings.Contains(d.attrs, "driver:nvidia") {
			s.Files["proc/driver/nvidia/gpus/"+path.Base(dir)+"/information"] = fmt.Sprintf("Model: \t\t NVIDIA GPU\nDevice Minor: \t %d\n", s.gpus)
		}
		s.gpus++
		return
	}
	name := fmt.Sprintf("%s%d", d.nic, s.nics)
	s.function(dir, "%s rdma:%s", attrs, name)
	ib, net := "sys/devices/"+dir+"/infiniband/"+name, fmt.Sprintf("eth%d", s.nics)
	s.Files["sys/devices/"+dir+"/resource"] = "0x3ff0000000 0x3ff1ffffff 0x14220c\n"
	for file, text := range map[string]string{
		"node_type": "1: CA", "fw_ver": "28.39.1002", "board_id": d.board, "node_guid": fmt.Sprintf("a088:c203:00ab:%04x", s.nics),
		"ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp", "ports/1/link_layer": "Ethernet", "ports/1/rate": "400 Gb/sec (4X NDR)", "ports/1/sm_lid": "0x0",
		"ports/1/gids/0": fmt.Sprintf("fe80:0000:0000:0000:a288:c2ff:feab:%04x", s.nics), "ports/1/gid_attrs/types/0": "RoCE v2", "ports/1/gid_attrs/ndevs/0": net,
		"ports/1/gids/3": fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:%04x", s.nics), "ports/1/gid_attrs/types/3": "RoCE v2", "ports/1/gid_attrs/ndevs/3": net,
		"ports/1/hw_counters/out_of_sequence": "0",
	} {
		s.Files[ib+"/"+file] = text + "\n"
	}
	maps.Copy(s.Files, map[string]string{
		fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", s.nics): name + "\n",
		"sys/class/net/" + net + "/operstate":                            "up\n",
		"sys/class/net/" + net + "/mtu":                                  "9000\n",
		"sys/class/net/" + net + "/address":                              fmt.Sprintf("a0:88:c2:ab:00:%02x\n", s.nics),
	})
	s.nics++
}

// root adds a host bridge: the function that stands for it, if it has one.
func (s *server) root(bus int, bridge string) string {
	dir := fmt.Sprintf("pci%04x:%02x", bus>>8, bus&0xff)
	if bridge != "" {
		s.function(fmt.Sprintf("%s/%04x:%02x:00.0", dir, bus>>8, bus&0xff), "%s", bridge)
	}
	return dir
}

// port adds a root port to a host bridge, and returns its directory.
func (s *server) port(root string, bus, slot int, attrs string) string {
	return s.function(fmt.Sprintf("%s/%04x:%02x:%02x.0", root, bus>>8, bus&0xff, slot), "class=0x060400 type=4 vendor=0x8086 device=0x352a %s", attrs)
}

// switched adds a root port with a switch, and devices below that. acs is the
// control register of its ports.
func (s *server) switched(root string, bus, node int, acs string, devices ...device) {
	up := s.function(fmt.Sprintf("%s/%04x:%02x:00.0", s.port(root, bus, 1, gen5+" acs=0x00"), bus>>8, bus&0xff+1), "class=0x060400 type=5 vendor=0x1000 device=0xc030 %s", gen5)
	for i, d := range devices {
		down := s.function(fmt.Sprintf("%s/%04x:%02x:%02x.0", up, bus>>8, bus&0xff+2, i), "class=0x060400 type=6 vendor=0x1000 device=0xc030 acs=%s %s", acs, gen5)
		s.put(fmt.Sprintf("%s/%04x:%02x:00.0", down, bus>>8, bus&0xff+3+i), d, node)
	}
}

// alone adds a root port with one device.
func (s *server) alone(root string, bus, slot, node int, d device) {
	s.put(fmt.Sprintf("%s/%04x:%02x:00.0", s.port(root, bus, slot, gen5+" acs=0x00"), bus>>8, bus&0xff+slot), d, node)
}

// display adds what a server's board has for a screen.
func (s *server) display(root string, bus int) {
	s.module("ast", "", "")
	s.function(fmt.Sprintf("%s/%04x:%02x:1e.0", root, bus>>8, bus&0xff), "class=0x030000 vendor=0x1a03 device=0x2000 driver:ast numa_node=0")
}

// nvidia adds the driver.
func (s *server) nvidia() {
	s.module("nvidia", "OE", "580.95.05")
	s.module("mlx5_ib", "", "")
	maps.Copy(s.Files, map[string]string{
		"proc/driver/nvidia/version":                 "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
		"proc/driver/nvidia/params":                  "DmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nEnableResizableBar: 0\n",
		"proc/driver/nvidia/capabilities/mig/config": "DeviceFileMinor: 1\n",
		"dev/nvidiactl":                              "",
	})
}

// HGX has eight GPUs and eight NICs below four switches, two and two, on two
// sockets.
func HGX() Tree { return hgx(4) }

func hgx(switches int) Tree {
	s := newServer(intelCPU, "HGX H100")
	s.iommu = "identity"
	s.nvidia()
	for i := range switches {
		bus := 0x10 + i*0x30
		root := s.root(bus, "class=0x088000 vendor=0x8086 device=0x09a2")
		s.switched(root, bus, i/2, "0x00", h100, cx7, h100, cx7)
		if i == 0 && switches > 1 {
			s.display(root, bus)
		}
	}
	return s.Tree
}

// WrongSocket has two GPUs on the first socket and two NICs on the second.
func WrongSocket() Tree {
	s := newServer(intelCPU, "2U")
	s.nvidia()
	first := s.root(0x10, "class=0x088000 vendor=0x8086 device=0x09a2")
	s.alone(first, 0x10, 1, 0, h100)
	s.alone(first, 0x10, 2, 0, h100)
	second := s.root(0x80, "class=0x088000 vendor=0x8086 device=0x09a2")
	s.alone(second, 0x80, 1, 1, cx7)
	s.alone(second, 0x80, 2, 1, cx7)
	return s.Tree
}

// GraceHopper has one GPU and one NIC, each below a root of its own, on an Arm
// processor with pages of 64 KiB.
func GraceHopper() Tree {
	s := newServer(graceCPU, "GH200")
	s.Release = "6.12.9-64k"
	s.Config = fullConfig + "CONFIG_ARM64_64K_PAGES=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\n"
	s.iommu = "DMA-FQ"
	s.nvidia()
	s.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"
	s.Files["proc/cmdline"] = "root=/dev/nvme0n1p2\n"
	for i, d := range []device{gh, cx7} {
		bus := (i + 8) << 8
		root := s.root(bus, "")
		s.put(fmt.Sprintf("%s/%04x:01:00.0", s.port(root, bus, 0, "vendor=0x10de device=0x22b1 acs=0x1d "+gen5), bus>>8), d, 0)
	}
	return s.Tree
}

// MI300 has eight GPUs and eight NICs of Broadcom's below four switches, on two
// AMD sockets.
func MI300() Tree { return mi300(4) }

func mi300(switches int) Tree {
	s := newServer(amdCPU, "MI300X")
	s.iommu = "identity"
	s.module("amdgpu", "", "")
	s.module("bnxt_re", "", "")
	s.Files["sys/module/amdgpu/parameters/pcie_p2p"] = "Y\n"
	s.Files["dev/kfd"] = ""
	for i := range switches {
		bus := 0x10 + i*0x30
		root := s.root(bus, "class=0x060000 vendor=0x1022 device=0x14a4")
		s.switched(root, bus, i/2, "0x00", mi3, thor, mi3, thor)
		if i == 0 && switches > 1 {
			s.display(root, bus)
		}
	}
	for i := range s.gpus {
		dir := fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/", i+2)
		s.Files[dir+"gpu_id"] = fmt.Sprintf("%d\n", 1000+i)
		s.Files[dir+"properties"] = "simd_count 1216\ngfx_target_version 90402\n"
		s.Files[dir+"io_links/0/properties"] = "type 2\n"
		s.Files[dir+"io_links/1/properties"] = "type 11\n"
	}
	return s.Tree
}

// Xe has two of Intel's GPUs and a NIC on ports of their own, on a desktop's
// processor.
func Xe() Tree {
	s := newServer(intelCPU, "Workstation")
	s.module("xe", "", "")
	s.module("mlx5_ib", "", "")
	s.Files["sys/module/xe/parameters/vram_bar_size"] = "0\n"
	s.Files["sys/module/xe/srcversion"] = "0\n"
	root := s.root(0, "class=0x060000 vendor=0x8086 device=0x7d14")
	s.alone(root, 0, 1, 0, bmg)
	s.alone(root, 0, 2, 0, bmg)
	s.alone(root, 0, 3, 0, cx7)
	return s.Tree
}

// FlatVM is a guest that has two GPUs and two NICs of the HGX on its root bus.
func FlatVM() Tree {
	s := newServer(strings.Replace(intelCPU, "fpu", "hypervisor fpu", 1), "Standard PC (Q35 + ICH9, 2009)")
	s.Files["sys/class/dmi/id/sys_vendor"] = "QEMU\n"
	s.nvidia()
	root := s.root(0, "class=0x060000 vendor=0x8086 device=0x29c0")
	for i, d := range []device{h100, h100, cx7, cx7} {
		s.put(fmt.Sprintf("%s/0000:00:%02x.0", root, i+3), d, -1)
	}
	return s.Tree
}

// Worker is a machine without a GPU: a network card of a kind, and a screen.
func Worker(nic string) Tree {
	tree := Machines["small-hgx"]()
	tree.Config = WithoutP2PDMA
	tree.Functions = "pci0000:00/0000:00:02.0 class=0x030000 vendor=0x1a03 device=0x2000 driver:ast\npci0000:00/0000:00:04.0 class=0x020000 " + nic + "\n"
	for name := range tree.Files {
		if strings.HasPrefix(name, "sys/devices/pci") || strings.HasPrefix(name, "proc/driver/nvidia") || strings.HasPrefix(name, "sys/class/infiniband") {
			delete(tree.Files, name)
		}
	}
	return tree
}
