// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// markers makes texts that each stand for something of the machine's owner, and remembers them.
type markers struct {
	all   map[string]string // what of it must not be in a snapshot, and the kind
	kinds map[string]bool
}

// plant replaces the words in braces: {w} is a name, {W} one in capitals, {ip}, {ip6}, {mac}, {hex} (a MAC without colons), {guid}, {uuid}, {pid}, {serial}.
func (m *markers) plant(kind, text string) string {
	m.kinds[kind] = true
	return inBraces.ReplaceAllStringFunc(text, func(what string) string {
		n := len(m.all)
		word := "qz" + string(rune('a'+n/26%26)) + string(rune('a'+n%26)) + "vw"
		mark := map[string]string{
			"{w}": word, "{W}": strings.ToUpper(word), "{host}": word + ".example.net",
			"{ip}": fmt.Sprintf("10.%d.%d.77", 100+n/100, 100+n%100), "{ip6}": fmt.Sprintf("fd00:%d:77ab::%x", 1000+n, 0xa000+n),
			"{mac}": fmt.Sprintf("a0:88:c2:5e:%02x:77", n), "{hex}": fmt.Sprintf("a088c25e%02x77", n), "{guid}": fmt.Sprintf("0xa088c203005e%04x", n),
			"{uuid}": fmt.Sprintf("7f3c1a%02x-5e5e-4c4c-8d8d-a088c25e%04x", n, n), "{pid}": fmt.Sprint(77_000_000 + n), "{serial}": fmt.Sprintf("SN77%06dXQ", n),
		}[what]
		if mark == "" {
			panic(what)
		}
		m.all[mark] = kind
		return mark
	})
}

var inBraces = regexp.MustCompile(`\{[A-Za-z0-9]+\}`)

// planted are files with what a snapshot must not have, each as it occurs on machines.
var planted = []struct{ kind, name, text string }{
	{"kernel configuration", "boot/config-7.2.12+deb13-amd64", "# Linux/x86 7.2.12+deb13-amd64 Kernel Configuration\nCONFIG_PCI=y\n" + testenv.WithP2PDMA + "CONFIG_CMDLINE=\"console=ttyS0 password={w} ip={ip}\"\nCONFIG_DEFAULT_HOSTNAME=\"{host}\"\n" +
		"CONFIG_BUILD_SALT=\"{w}\"\nCONFIG_LOCALVERSION=\"-{w}\"\nCONFIG_MODULE_SIG_KEY=\"/home/{w}/keys/{w}.pem\"\nCONFIG_SYSTEM_TRUSTED_KEYS=\"{w}.pem\"\nCONFIG_{W}_DRIVER=m\n# CONFIG_{W} is not set\n# {w} built this\nCONFIG_SYNC_FILE=y\n" +
		"CONFIG_PCI_P2PDMA_{W}=y\n"},
	{"other configurations", "usr/src/linux-headers-6.12.9-{w}/.config", "CONFIG_PCI=y\nCONFIG_INITRAMFS_SOURCE=\"/root/{w}\"\n"},
	{"other configurations", "boot/config-6.12.9-{w}-amd64", "CONFIG_PCI=y\nCONFIG_HAS_DMA={w}\n"},
	{"source directories", "usr/src/{w}-driver-1.2/.config", "CONFIG_PCI={w}\n"},
	{"source directories", "usr/src/kernels/6.12.1.{w}/.config", "CONFIG_PCI=y\n"},
	{"source directories", "lib/modules/6.12.9-{w}/config", "CONFIG_PCI=y\n"},
	{"source directories", "lib/modules/7.2.12+deb13-amd64/modules.builtin", "kernel/drivers/pci/{w}.ko\nkernel/drivers/net/{w}_net.ko\nkernel/drivers/vfio/pci/vfio-pci.ko\n"},

	{"kernel's log", "dev/kmsg", "6,0,1,-;Linux version 7.2.12+deb13-amd64 (root@{host}) #1\n" +
		"4,1,2,-;NVRM: Xid (PCI:0000:13:00): 31, pid={pid}, name={w}, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 faulted @ 0x7f3c_1a5e0000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n" +
		"4,2,3,-;mlx5_core 0000:14:00.0 {w}0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:12:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link) {mac} {hex} {guid}\n" +
		"4,3,4,-;DMAR: [DMA Write NO_PASID] Request device [14:00.0] fault addr 0x38000000000 [fault reason 0x05] PTE Write access is not set for {w} at {ip}\n" +
		"4,4,5,-;pcieport 0000:12:00.0: AER: Corrected error received: 0000:13:00.0 {host} {ip6} {uuid} {w}@{host}\n" +
		"4,5,6,-;nvidia_peermem: {w}: detected invalid context, skipping further processing, pid {pid}\n" +
		"4,6,7,-;{w} logged in from {ip}\n"},

	{"variables", "proc/self/environ", "PATH=/home/{w}/bin\x00PASSWORD={w}\x00NCCL_COMM_ID={ip}:4321\x00NCCL_HOSTID={w}\x00NCCL_TOPO_FILE=/home/{w}/topo-{w}.xml\x00NCCL_NET={w}\x00NCCL_NET_PLUGIN=/opt/{w}/libnccl-net-{w}.so\x00" +
		"NCCL_IB_HCA={w}0:1,mlx5_0\x00UCX_NET_DEVICES={w}1:1,eth0\x00FI_PROVIDER=verbs;{w}\x00FI_VERBS_DEVICE_NAME={w}\x00MC_CUSTOM_TOPO_JSON=/etc/{w}.json\x00NIXL_PLUGIN_DIR=/srv/{w}/{w}\x00NVSHMEM_HCA_PE_MAPPING={w}0:1:2\x00" +
		"MC_TE_FILTERS_EXCLUDE={host}\x00NCCL_P2P_LEVEL={W}\x00NCCL_{W}=1\x00UCX_{W}={w}\x00NCCL_DMABUF_ENABLE={w}\x00NVSHMEM_IB_DISABLE_DMABUF=f{w}\x00NIXL_CONFIG_FILE={uuid}\x00UCX_IB_GID_INDEX={pid}\x00"},

	{"command line", "proc/cmdline", "BOOT_IMAGE=/vmlinuz-{w} root=UUID={uuid} ip={ip}::{ip}:255.255.255.0:{host} iommu=pt,{w} pci={w},noats pci=disable_acs_redir=0000:10:00.0;{w} intel_iommu=on,{w} i915.force_probe={w} pcie_acs_override={w} {w}.key={w} systemd.hostname={host} --\n"},

	{"packages", "usr/lib64/pkgconfig/libfabric.pc", "prefix=/home/{w}/libfabric\nexec_prefix=/opt/{w}\nlibdir=/srv/{w}/lib\nName: libfabric\nDescription: built for {w}\nURL: https://{host}/\nVersion: 1.22.0\nCflags: -I/home/{w}\n"},
	{"packages", "usr/lib/{w}/pkgconfig/libfabric.pc", "Version: 1.22.0-{w}\n"},

	{"modules", "sys/module/{w}_drv/taint", "OE\n"},
	{"modules", "sys/module/{w}_drv/version", "1.0-{w}\n"},
	{"modules", "sys/module/mlx5_core/version", "24.10-{w}\n"},
	{"modules", "sys/module/{w}/srcversion", "{uuid}\n"},
	{"modules", "sys/module/nvidia/version", "580.95.05\n{w}\n"},
	{"memory clients", "sys/kernel/mm/memory_peers/{w}/version", "{w}\n"},

	{"CDI", "etc/cdi/{w}.yaml", "cdiVersion: 0.6.0\nkind: {w}.com/gpu\n"},
	{"CDI", "run/cdi/{host}.json", "{}"},
	{"plugins", "var/lib/kubelet/device-plugins/kubelet.sock", ""},
	{"plugins", "var/lib/kubelet/device-plugins/{w}.sock", ""},
	{"plugins", "var/lib/kubelet/device-plugins/{w}_checkpoint", "{w}"},
	{"providers", "etc/libibverbs.d/{w}.driver", "driver {w}\n"},
	{"providers", "usr/lib64/libibverbs/lib{w}-rdmav34.so", "{w}"},
	{"providers", "usr/lib64/libibverbs.so.1.14.{w}", "\x7fELF\x00{w}\x00/opt/{w}/lib%s-rdmav34.so\x00"},

	{"bonds", "sys/class/net/bond-{w}/bonding/slaves", "{w}0 {w}1\n"},
	{"bonds", "sys/class/net/bond-{w}/mtu", "9000\n"},
	{"network devices", "sys/class/net/wg-{w}/mtu", "1420\n"},
	{"network devices", "sys/class/net/cali{w}/operstate", "up\n"},
	{"network devices", "sys/class/net/enx{hex}/operstate", "up\n"},
	{"network devices", "sys/class/net/vlan.{w}/operstate", "{w}\n"},
	{"network devices", "sys/class/net/eth0/mtu", "9000 {w}\n"},

	{"mounts", "proc/self/mountinfo", "24 1 0:22 / /dev/shm rw - tmpfs {w} rw,size=65536k,uid={pid},mode={w}\n25 1 0:23 / / rw - overlay overlay rw,lowerdir=/var/{w},upperdir=/srv/{w}\n" +
		"26 1 0:24 /{w} /sys/fs/{w} rw - fuse.{w} {host}:/export/{w} rw\n27 1 0:25 / /proc/{w}/{w} rw - tmpfs tmpfs rw\n28 1 0:26 / /home/{w} rw - nfs4 {ip}:/home rw\n"},
	{"control groups", "proc/self/cgroup", "1:name={w}:/{w}\n2:{w},cpu:/\n0::/kubepods.slice/kubepods-pod{uuid}.slice/cri-containerd-{w}.scope\n"},
	{"control groups", "proc/1/cgroup", "0::/docker/{uuid}\n"},

	{"processor", "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: {w} {W} CPU\nflags\t\t: fpu vme {w}\nSerial\t\t: {serial}\nmicrocode\t: 0x{hex}\nbugs\t\t: {w}\n\nprocessor\t: 1\nmodel name\t: {w}\n"},
	{"firmware", "sys/class/dmi/id/sys_vendor", "{w} Supermicro\n"},
	{"firmware", "sys/class/dmi/id/product_name", "SYS {W}-{serial}\n"},

	{"NVIDIA", "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  ({w}@{host})  Tue Sep 23\nGCC version:  gcc version 12.2.0 ({W} 12.2.0-14)\n"},
	{"NVIDIA", "proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nDmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nEnableResizableBar: 0\nDeviceFileUID: {pid}\nRegistryDwords: \"PeerMappingOverride=0x1;{W}=1\"\nRegistryDwordsPerDevice: \"pci={w}\"\n" +
		"RmMsg: \"{w}\"\nGpuBlacklist: \"{w}\"\nTemporaryFilePath: \"/tmp/{w}\"\nExcludedGpus: \"GPU-{uuid}\"\nCoherentGPUMemoryMode: \"{w}\"\n"},
	{"NVIDIA", "proc/driver/nvidia/gpus/0000:13:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 77\nGPU UUID: \t GPU-{uuid}\nVideo BIOS: \t 96.00.{w}\nSerial: \t {serial}\nBus Location: \t 0000:13:00.0\nDevice Minor: \t 0\nGPU Firmware: \t 580.95.05\nOwner: {w}\n"},
	{"NVIDIA", "proc/driver/nvidia/gpus/0000:15:00.0/information", "Model: \t\t NVIDIA {W}\nDevice Minor: \t 1\nGPU Firmware: {w}\n"},
	{"AMD", "sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90402\nunique_id {pid}\nlocation_id {w}\n"},
	{"AMD", "sys/class/kfd/kfd/topology/nodes/1/gpu_id", "{w}\n"},
	{"AMD", "sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties", "type 2\nnode_from {pid}\n{w} 1\n"},

	{"process", "proc/self/status", "Name:\t{w}\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nUid:\t{pid}\n"},
	{"process", "proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         8388608              8388608              bytes\nMax {w}         unlimited            unlimited            bytes\n"},
	{"symbols", "proc/kallsyms", "ffffffff81000000 T _etext\nffffffff{hex} t {w}_fn\nffffffffc0000000 t ib_register_device\t[ib_core]\nffffffffc0000001 t {w}_other\t[{w}_mod]\n"},

	{"groups of PCI", "sys/kernel/security/{w}", ""},
	{"groups of PCI", "sys/kernel/tracing/events/{w}/enable", "0\n"},
	{"groups of PCI", "sys/class/iommu/{w}", ""},
}

// rich is a machine with something of its owner wherever a snapshot looks.
func rich(t *testing.T) (root string, m *markers) {
	t.Helper()
	m = &markers{all: map[string]string{}, kinds: map[string]bool{}}
	tree := testenv.Machines["small-hgx"]()
	tree.Config, tree.CPU, tree.Release = "-", "-", ""
	delete(tree.Files, "etc/cdi/gpu.yaml") // a list of names would have another order
	// The RDMA and the network device of one NIC have names that a rule of udev has given.
	rdma, netdev, guid := m.plant("RDMA devices", "{w}"), m.plant("network devices", "{w}"), m.plant("RDMA devices", "rocex{hex}")
	rename := strings.NewReplacer("mlx5_0", rdma+"0", "mlx5_1", guid, "eth0", netdev+"0").Replace
	tree.Functions = rename(tree.Functions)
	for name, text := range maps.Clone(tree.Files) {
		delete(tree.Files, name)
		tree.Files[rename(name)] = rename(text)
	}
	for name, target := range maps.Clone(tree.Links) {
		delete(tree.Links, name)
		tree.Links[rename(name)] = rename(target)
	}
	for _, p := range planted {
		if path.Base(p.name) == "{}" {
			t.Fatal(p.name)
		}
		tree.Files[m.plant(p.kind, p.name)] = m.plant(p.kind, p.text)
	}
	tree.Files["proc/self/environ"] += "NCCL_IB_HCA=" + rdma + "\x00NCCL_SOCKET_IFNAME=" + netdev + "0\x00"
	groups := tree.Files["proc/self/cgroup"]
	own := strings.TrimSpace(groups[strings.Index(groups, "0::/")+4:])
	tree.Files["sys/fs/cgroup/"+own+"/rdma.max"] = rdma + "0 hca_handle=3 hca_object=max\n" + m.plant("control groups", "{w}0 hca_handle={w}\n")
	tree.Files["sys/fs/cgroup/"+own+"/rdma.current"] = rdma + "0 hca_handle=3 hca_object=1\n"
	if tree.Texts == nil {
		tree.Texts = map[string]string{}
	}
	root = tree.Write(t)
	function := filepath.Join(root, "sys/bus/pci/devices/0000:14:00.0")
	vpd := pci.VPD(pci.VPDField{Keyword: "SN", Value: m.plant("vital product data", "{serial}")}, pci.VPDField{Keyword: "V3", Value: m.plant("vital product data", "{uuid}")},
		pci.VPDField{Keyword: "VU", Value: m.plant("vital product data", "{uuid}MLNXS0D0F0")}, pci.VPDField{Keyword: "RW", Value: m.plant("vital product data", "{w}")})
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(function, "vpd"), string(vpd))
	for _, attr := range []string{"current_link_speed", "max_link_width", "numa_node", "subsystem_vendor", "power/runtime_status", "d3cold_allowed", "dma_mask_bits", "aer_dev_fatal", "resource1_resize"} {
		put(filepath.Join(root, "sys/bus/pci/devices/0000:15:00.0", attr), m.plant("attributes", "{w}\n"))
	}
	ib := filepath.Join(root, "sys/class/infiniband", rdma+"0")
	for _, attr := range []string{"board_id", "fw_ver", "node_desc", "node_guid", "ports/1/rate", "ports/1/sm_lid", "ports/1/phys_state", "ports/1/gid_attrs/types/0", "ports/1/hw_counters/rx_drops", "ports/1/hw_counters/" + m.plant("RDMA devices", "{w}")} {
		put(filepath.Join(ib, attr), m.plant("RDMA devices", "{w}\n"))
	}
	for i, gid := range []string{"fe80:0000:0000:0000:a288:c2ff:fe5e:7701", "0000:0000:0000:0000:0000:ffff:0a4d:4d4d", "fd00:7777:0000:0000:0000:0000:0000:0077"} {
		put(filepath.Join(ib, "ports/1/gids", fmt.Sprint(i)), gid+"\n")
		put(filepath.Join(ib, "ports/1/gid_attrs/ndevs", fmt.Sprint(i)), netdev+"0\n")
		m.all[gid], m.kinds["addresses"] = "addresses", true
	}
	// A vendor may have any text in registers of its own.
	config := filepath.Join(function, "config")
	space, err := os.ReadFile(config)
	if err != nil || len(space) < 4096 {
		t.Fatal(err, len(space))
	}
	copy(space[0xf00:], m.plant("configuration space", "{w}"))
	copy(space[0xc0:], m.plant("configuration space", "{w}"))
	put(config, string(space))
	// Links to where an administrator has put things.
	for _, l := range []struct{ name, dir string }{{"opt/amazon/efa/lib/pkgconfig", "srv/{w}/{w}"}, {"usr/local/lib/libibverbs", "srv/{w}"}, {"boot/config-6.1.0-{w}", "srv/{w}/x7{w}"}} {
		name, dir := filepath.Join(root, m.plant("links", l.name)), filepath.Join(root, m.plant("links", l.dir))
		put(filepath.Join(dir, "libfabric.pc"), "Version: 1.20\n")
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(name)
		to, err := filepath.Rel(filepath.Dir(name), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	return root, m
}

// found are the markers that an archive has, in any case of letters and without the signs between their parts.
func (m *markers) found(plain string) []string {
	bare := func(text string) string {
		return strings.NewReplacer(":", "", "-", "", ".", "", "_", "").Replace(strings.ToLower(text))
	}
	whole, short := strings.ToLower(plain), bare(plain)
	var out []string
	for mark, kind := range m.all {
		if strings.Contains(whole, strings.ToLower(mark)) || len(mark) > 10 && strings.Contains(short, bare(mark)) {
			out = append(out, kind+": "+mark)
		}
	}
	return out
}

// A snapshot has no marker, and p2pcheck gives the same report for it as for the machine.
func TestSnapshotTellsNothing(t *testing.T) {
	root, m := rich(t)
	if len(m.all) < 150 || len(m.kinds) < 20 {
		t.Fatalf("%d markers of %d kinds", len(m.all), len(m.kinds))
	}
	t.Logf("%d markers of %d kinds", len(m.all), len(m.kinds))
	file, s := snapshotOf(t, root)
	if all := m.found(members(t, file)); len(all) > 0 {
		t.Errorf("%d markers came through:\n%s", len(all), strings.Join(all, "\n"))
	}
	sameAsMachine(t, "the machine of the markers", root, file, s)
}

// The same of every file of a machine, with a line more, and of every directory, with a file more.
func TestSnapshotTellsNothingOfAnyFile(t *testing.T) {
	for name, tree := range map[string]testenv.Tree{"small-hgx": testenv.Machines["small-hgx"](), "small-mi300": testenv.Machines["small-mi300"](), "xe": testenv.Machines["xe"]()} {
		root := tree.Write(t)
		m := &markers{all: map[string]string{}, kinds: map[string]bool{}}
		var dirs, all []string
		err := filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
			switch {
			case err != nil:
			case e.IsDir():
				dirs = append(dirs, name)
			case e.Type().IsRegular():
				all = append(all, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// The alphabet of the names has 676 of them: a word is used again, and any of them counts.
		for i, name := range all {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text := []string{"{w}\n", "\n{w}={w}\n", " {w}", "\x00{w}=1\x00"}[i%4]
			if err := os.WriteFile(name, append(data, m.plant("contents", text)...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range dirs {
			if err := os.WriteFile(filepath.Join(dir, m.plant("names", "{w}")), []byte(m.plant("contents", "{w}\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, m.plant("names", "{w}7")), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		file, _ := snapshotOf(t, root)
		if found := m.found(members(t, file)); len(found) > 0 {
			t.Errorf("%s: %d markers of %d came through: %v", name, len(found), len(m.all), found[:min(len(found), 20)])
		}
		t.Logf("%s: %d files, %d directories", name, len(all), len(dirs))
	}
}
