// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// lookedAt are the files of a snapshot, as patterns below the root. Of a name behind "!" the snapshot has
// no contents.
var lookedAt = []string{
	"proc/sys/kernel/osrelease", "proc/sys/kernel/numa_balancing", "proc/cpuinfo", "proc/cmdline", "proc/config.gz", "proc/kallsyms",
	"proc/self/status", "proc/self/limits", "proc/self/cgroup", "proc/self/environ", "proc/self/mountinfo", "proc/self/ns/user", "proc/self/ns/pid", "proc/self/ns/net", "proc/1/ns/net", "proc/self/ns/mnt", "proc/1/ns/mnt", "proc/1/cgroup",
	"!proc/sys/vm", "!sys/class/mem", // of a whole procfs and sysfs
	"proc/driver/nvidia/version", "proc/driver/nvidia/params", "proc/driver/nvidia/gpus/*/information", "!proc/driver/nvidia/capabilities/*", "!proc/driver/nvidia/capabilities/*/mig/*",
	"boot/config-*", "lib/modules/*/config", "usr/lib/modules/*/config", "lib/modules/*/modules.builtin", "usr/lib/modules/*/modules.builtin", "usr/src/*/.config", "usr/src/kernels/*/.config",
	"sys/devices/system/node/online", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name",
	"sys/class/drm/*/device", "sys/class/infiniband_verbs/abi_version", "sys/class/infiniband_verbs/*/ibdev",
	"sys/class/infiniband/*/device/driver", "sys/class/infiniband/*/parent", "sys/class/infiniband/*/importer", "sys/class/infiniband/*/peer2peer",
	"sys/class/infiniband/*/node_type", "sys/class/infiniband/*/fw_ver", "sys/class/infiniband/*/board_id",
	"sys/class/infiniband/*/ports/*/state", "sys/class/infiniband/*/ports/*/phys_state", "sys/class/infiniband/*/ports/*/link_layer",
	"sys/class/infiniband/*/ports/*/rate", "sys/class/infiniband/*/ports/*/sm_lid", "sys/class/infiniband/*/ports/*/gids/*",
	"sys/class/infiniband/*/ports/*/gid_attrs/types/*", "sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*",
	"sys/class/infiniband/*/ports/*/hw_counters/*",
	"sys/class/net/*/operstate", "sys/class/net/*/mtu", "sys/class/net/*/bonding/slaves", "!sys/class/cxi/*",
	"sys/class/kfd/kfd/topology/nodes/*/gpu_id", "sys/class/kfd/kfd/topology/nodes/*/properties", "sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties", "sys/class/kfd/kfd/topology/nodes/*/p2p_links/*/properties",
	"!sys/module/*", "sys/module/*/taint", "sys/module/*/initstate", "sys/module/*/version", "sys/module/*/srcversion",
	"sys/module/ib_core/parameters/netns_mode", "sys/module/amdgpu/parameters/pcie_p2p", "sys/module/xe/parameters/vram_bar_size",
	"sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "sys/module/softgpu/parameters/topology_gate",
	"sys/kernel/security/lockdown", "!sys/kernel/security/*", "!sys/kernel/btf/vmlinux", "!sys/kernel/tracing/events/*", "!sys/kernel/debug/tracing/events/dma_buf",
	"sys/kernel/mm/memory_peers/*/version", "sys/kernel/iommu_groups/*/type", "sys/kernel/iommu_groups/*/devices/*", "!sys/class/iommu/*",
	"!dev/kmsg", "!dev/kfd", "!dev/nvidiactl", "!dev/hl0", "!dev/accel/accel0",
	"!.dockerenv", "!run/.containerenv", "!etc/libibverbs.d/*", "!usr/local/etc/libibverbs.d/*", "!etc/cdi/*", "!run/cdi/*", "!var/run/cdi/*", "!var/lib/kubelet/device-plugins/*",
	"opt/amazon/efa/*/pkgconfig/libfabric.pc", "usr/lib64/pkgconfig/libfabric.pc", "usr/lib/pkgconfig/libfabric.pc", "usr/lib/*/pkgconfig/libfabric.pc",
	"usr/lib64/libibverbs.so.1.*", "usr/lib/libibverbs.so.1.*", "usr/lib/*/libibverbs.so.1.*", "usr/local/lib/libibverbs.so.1.*",
	"lib64/libibverbs.so.1.*", "lib/*/libibverbs.so.1.*",
	"!usr/lib64/libibverbs/*", "!usr/lib/libibverbs/*", "!usr/lib/*/libibverbs/*", "!usr/local/lib/libibverbs/*", "!lib64/libibverbs/*", "!lib/*/libibverbs/*",
}

// roots are directories whose presence in a copy says that the copy is complete below them.
var roots = []string{"sys/class", "sys/module", "sys/kernel", "sys/kernel/mm", "sys/kernel/security", "sys/bus", "sys/devices", "sys/fs", "proc/sys", "dev", "etc", "etc/libibverbs.d", "run", "usr", "usr/lib", "usr/lib64", "usr/local/lib", "lib64", "lib", "var", "boot"}

// ofAnyFunction and ofEndpoints are attributes of PCI functions.
var (
	ofAnyFunction = []string{"vendor", "device", "class", "driver", "numa_node"}
	ofEndpoints   = []string{
		"config", "resource", "resource0_resize", "resource1_resize", "resource2_resize", "resource3_resize", "resource4_resize", "resource5_resize",
		"current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "dma_mask_bits", "subsystem_vendor", "subsystem_device", "power/runtime_status", "d3cold_allowed",
		"aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable", "mem_info_vram_total", "mem_info_vis_vram_total",
		"iommu_group", "physfn", "p2pmem", "p2pmem/size", "nvme/*/cmb", "behaviour", "pin_rule", "virtio*/driver", "drm/*",
		"net/*/bonding_slave/state",
	}
)

// entry is a file of a snapshot.
type entry struct {
	data       []byte
	link       string
	dir        bool
	unreadable bool
}

// collector gathers files below a root.
type collector struct {
	root    string
	entries map[string]entry
}

// collect gathers the files that the checks read.
func collect(root string) map[string]entry {
	c := &collector{root: root, entries: map[string]entry{}}
	for _, dir := range roots {
		c.add(dir, true)
	}
	for _, pattern := range lookedAt {
		name, bare := strings.CutPrefix(pattern, "!")
		c.glob("", strings.Split(name, "/"), bare)
	}
	c.functions()
	return c.entries
}

// functions gathers the PCI functions that can be part of a way.
func (c *collector) functions() {
	names, err := c.list("sys/bus/pci/devices")
	if err != nil {
		return
	}
	for _, name := range names {
		dir := path.Join("sys/bus/pci/devices", name)
		for _, attr := range ofAnyFunction {
			c.add(path.Join(dir, attr), false)
		}
		if c.matters(dir, name) {
			for _, attr := range ofEndpoints {
				c.glob(dir, strings.Split(attr, "/"), strings.HasPrefix(attr, "drm"))
			}
			if c.vendor(dir) == machine.VendorMellanox {
				c.add(path.Join(dir, "vpd"), false) // it names the card, and takes long to read
			}
		}
	}
}

// matters reports a function that may be a GPU or NIC, moves data for one, is an
// NVMe controller or a bridge, or stands for a host bridge.
func (c *collector) matters(dir, name string) bool {
	class, err := os.ReadFile(filepath.Join(c.root, dir, "class"))
	driver, _ := os.Readlink(filepath.Join(c.root, dir, "driver"))
	base := strings.TrimPrefix(string(class), "0x")
	if err != nil || len(base) < 2 || strings.HasSuffix(name, ":00.0") || slices.Contains([]string{"softgpu", "vfio-pci", "mlx5_ib"}, path.Base(driver)) {
		return true
	}
	return strings.HasPrefix(base, "0108") || slices.Contains([]string{"02", "03", "05", "06", "0c", "12"}, base[:2])
}

// vendor is the vendor of a function, 0 if it is not known.
func (c *collector) vendor(dir string) uint64 {
	text, err := os.ReadFile(filepath.Join(c.root, dir, "vendor"))
	if err != nil {
		return 0
	}
	id, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 16)
	return id
}

func (c *collector) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(c.root, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !isNoDirectory(err) {
		c.entries[dir] = entry{unreadable: true}
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// glob adds the files that a pattern matches, and marks directories that cannot be listed.
func (c *collector) glob(dir string, parts []string, bare bool) {
	for i, part := range parts {
		if !strings.ContainsAny(part, "*") {
			continue
		}
		at := path.Join(append([]string{dir}, parts[:i]...)...)
		names, err := c.list(at)
		if err != nil {
			return
		}
		c.add(at, true)
		for _, name := range names {
			if ok, _ := path.Match(part, name); ok {
				c.glob(path.Join(at, name), parts[i+1:], bare)
			}
		}
		return
	}
	c.add(path.Join(append([]string{dir}, parts...)...), bare)
}

// linkLimit is the greatest number of links on the way to a file.
const linkLimit = 40

// add keeps a file, and every link on the way to it.
func (c *collector) add(name string, bare bool) {
	parts := strings.Split(path.Clean(name), "/")
	at := ""
	for links := 0; len(parts) > 0; {
		next := path.Join(at, parts[0])
		parts = parts[1:]
		if e, ok := c.entries[next]; ok && e.dir {
			at = next
			continue
		}
		st, err := os.Lstat(filepath.Join(c.root, next))
		switch {
		case errors.Is(err, fs.ErrNotExist) || isNoDirectory(err):
			return
		case err != nil:
			c.entries[next] = entry{unreadable: true}
			return
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(filepath.Join(c.root, next))
			if links++; err != nil || links > linkLimit {
				c.entries[next] = entry{unreadable: true}
				return
			}
			whole := path.Join(at, target)
			if path.IsAbs(target) {
				whole = strings.TrimPrefix(path.Clean(target), "/")
			}
			if !filepath.IsLocal(whole) {
				return
			}
			c.entries[next] = entry{link: relative(at, whole)}
			parts = append(strings.Split(whole, "/"), parts...)
			at = ""
		case st.IsDir():
			c.entries[next] = entry{dir: true}
			at = next
		default:
			if len(parts) == 0 {
				c.file(next, bare || !st.Mode().IsRegular())
			}
			return
		}
	}
}

// relative is the text of a link in a directory that leads to a name.
func relative(dir, name string) string {
	rel, err := filepath.Rel("/"+dir, "/"+name)
	if err != nil {
		return name
	}
	return rel
}

// file adds a file, or only its name if bare.
func (c *collector) file(name string, bare bool) {
	if _, ok := c.entries[name]; ok {
		return
	}
	var data []byte
	var err error
	if !bare {
		data, err = c.contents(name)
	}
	if err != nil {
		c.entries[name] = entry{unreadable: true}
		return
	}
	c.entries[name] = entry{data: data}
}

// fileLimit is larger than any file that a snapshot keeps.
const fileLimit = 16 << 20

func (c *collector) contents(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(c.root, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if name == "proc/kallsyms" {
		return symbols(f)
	}
	data, err := io.ReadAll(io.LimitReader(f, fileLimit))
	if strings.HasPrefix(path.Base(name), "libibverbs.so.") {
		data = check.ProviderNames(data) // the checks read only these names
	}
	return data, err
}

// symbols are the few lines of /proc/kallsyms that the checks look for.
func symbols(r io.Reader) ([]byte, error) {
	var out []byte
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if symbolic(lines.Bytes()) {
			out = append(append(out, lines.Bytes()...), '\n')
		}
	}
	return out, lines.Err()
}

func symbolic(line []byte) bool {
	f := bytes.Fields(line) // a module's symbol has the module's name behind it
	return len(f) >= 3 && slices.Contains([]string{"pci_p2pdma_distance_many", "pci_enable_device", "_etext", "ib_register_peer_memory_client", "ib_register_device"}, string(f[2]))
}
