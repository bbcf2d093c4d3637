// SPDX-License-Identifier: Apache-2.0

package redact

import "slices"

// Item names files of a machine, with the rule for their contents.
type Item struct {
	Pattern string // names with wildcards, as in path.Match, below the root or below the directory of a PCI function
	Rule    *Rule
}

// Taken returns the files of a snapshot, without those of PCI functions. The order matters: a file that names a
// device comes before files that refer to the device.
func Taken() []Item { return slices.Clone(taken) }

// OfFunctions returns the attributes of every PCI function.
func OfFunctions() []Item { return slices.Clone(ofFunctions) }

// OfEndpoints returns the attributes of PCI functions that may be on the way between a GPU and a NIC.
func OfEndpoints() []Item { return slices.Clone(ofEndpoints) }

// OfCards returns the attribute of a ConnectX NIC that names its card (the VPD). Reading it takes long.
func OfCards() Item { return Item{"vpd", vpd} }

// LogRule and GroupRule are the rules of the kernel's log and of the limits of control groups, which Taken does
// not list.
var (
	LogRule   = Rule{Keeps: "lines that a check looks for: the kernel's own words, PCI addresses, devices; … stands for other words", keep: func(_ *Redactor, data []byte) []byte { return data }}
	GroupRule = *limit
)

var taken = []Item{
	{"sys/class/infiniband/*/device/driver", exists}, {"sys/class/infiniband/*/parent", netName}, {"sys/class/infiniband/*/importer", importer}, {"sys/class/infiniband/*/peer2peer", answer},
	{"sys/class/infiniband/*/node_type", state}, {"sys/class/infiniband/*/fw_ver", firmwareVersion}, {"sys/class/infiniband/*/board_id", board},
	{"sys/class/infiniband/*/ports/*/state", state}, {"sys/class/infiniband/*/ports/*/phys_state", state}, {"sys/class/infiniband/*/ports/*/link_layer", linkLayer},
	{"sys/class/infiniband/*/ports/*/rate", rate}, {"sys/class/infiniband/*/ports/*/sm_lid", number}, {"sys/class/infiniband/*/ports/*/gids/*", gid},
	{"sys/class/infiniband/*/ports/*/gid_attrs/types/*", gidType}, {"sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*", netName},
	{"sys/class/infiniband/*/ports/*/hw_counters/*", number},
	{"sys/class/infiniband_verbs/abi_version", number}, {"sys/class/infiniband_verbs/*/ibdev", ibName},
	{"sys/class/net/*/operstate", operstate}, {"sys/class/net/*/mtu", number}, {"sys/class/net/*/bonding/slaves", listed(ofNet)}, {"sys/class/cxi/*", exists},
	{"sys/class/drm/*/device", exists},
	{"sys/class/kfd/kfd/topology/nodes/*/gpu_id", number}, {"sys/class/kfd/kfd/topology/nodes/*/properties", gfx},
	{"sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties", linkType}, {"sys/class/kfd/kfd/topology/nodes/*/p2p_links/*/properties", linkType},
	{"sys/module/*", exists}, {"sys/module/*/taint", taint}, {"sys/module/*/initstate", initstate}, {"sys/module/*/version", version}, {"sys/module/*/srcversion", source},
	{"sys/module/ib_core/parameters/netns_mode", answer}, {"sys/module/amdgpu/parameters/pcie_p2p", answer}, {"sys/module/xe/parameters/vram_bar_size", number},
	{"sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", answer}, {"sys/module/softgpu/parameters/topology_gate", answer},
	{"sys/kernel/security/lockdown", lock}, {"sys/kernel/security/*", exists}, {"sys/kernel/btf/vmlinux", exists}, {"sys/kernel/tracing/events/*", exists}, {"sys/kernel/debug/tracing/events/dma_buf", exists},
	{"sys/kernel/mm/memory_peers/*/version", version}, {"sys/kernel/iommu_groups/*/type", domain}, {"sys/kernel/iommu_groups/*/devices/*", exists}, {"sys/class/iommu/*", exists},
	{"sys/devices/system/node/online", cpus}, {"sys/class/dmi/id/sys_vendor", firmware}, {"sys/class/dmi/id/product_name", firmware},
	{"sys/class/mem", exists}, // of a whole sysfs

	{"proc/sys/kernel/osrelease", release}, {"proc/sys/kernel/numa_balancing", number}, {"proc/cpuinfo", processor}, {"proc/cmdline", parameters}, {"proc/config.gz", packed}, {"proc/kallsyms", symbols},
	{"proc/self/status", privs}, {"proc/self/limits", limits}, {"proc/self/cgroup", groups}, {"proc/self/environ", environ}, {"proc/self/mountinfo", mounted},
	{"proc/self/ns/user", exists}, {"proc/self/ns/pid", exists}, {"proc/self/ns/net", exists}, {"proc/1/ns/net", exists}, {"proc/self/ns/mnt", exists}, {"proc/1/ns/mnt", exists}, {"proc/1/cgroup", groups},
	{"proc/sys/vm", exists}, // of a whole procfs
	{"proc/driver/nvidia/version", nvidiaVersion}, {"proc/driver/nvidia/params", nvidiaParams}, {"proc/driver/nvidia/gpus/*/information", nvidiaInformation},
	{"proc/driver/nvidia/capabilities/*", exists}, {"proc/driver/nvidia/capabilities/*/mig/*", exists},
	{"boot/config-*", options}, {"lib/modules/*/config", options}, {"usr/lib/modules/*/config", options}, {"lib/modules/*/modules.builtin", builtIn}, {"usr/lib/modules/*/modules.builtin", builtIn},
	{"usr/src/*/.config", options}, {"usr/src/kernels/*/.config", options},

	{"dev/kmsg", exists}, {"dev/kfd", exists}, {"dev/nvidiactl", exists}, {"dev/hl0", exists}, {"dev/accel/accel0", exists},
	{".dockerenv", exists}, {"run/.containerenv", exists}, {"etc/libibverbs.d/*", exists}, {"usr/local/etc/libibverbs.d/*", exists},
	{"etc/cdi/*", exists}, {"run/cdi/*", exists}, {"var/run/cdi/*", exists}, {"var/lib/kubelet/device-plugins/*", exists},
	{"opt/amazon/efa/*/pkgconfig/libfabric.pc", libfab}, {"usr/lib64/pkgconfig/libfabric.pc", libfab}, {"usr/lib/pkgconfig/libfabric.pc", libfab}, {"usr/lib/*/pkgconfig/libfabric.pc", libfab},
	{"usr/lib64/libibverbs.so.1.*", library}, {"usr/lib/libibverbs.so.1.*", library}, {"usr/lib/*/libibverbs.so.1.*", library}, {"usr/local/lib/libibverbs.so.1.*", library},
	{"lib64/libibverbs.so.1.*", library}, {"lib/*/libibverbs.so.1.*", library},
	{"usr/lib64/libibverbs/*", exists}, {"usr/lib/libibverbs/*", exists}, {"usr/lib/*/libibverbs/*", exists}, {"usr/local/lib/libibverbs/*", exists}, {"lib64/libibverbs/*", exists}, {"lib/*/libibverbs/*", exists},
}

var (
	ofFunctions = []Item{{"vendor", anID}, {"device", anID}, {"class", anID}, {"driver", exists}, {"numa_node", number}}
	ofEndpoints = []Item{
		{"config", space}, {"resource", regions}, {"resource0_resize", mask}, {"resource1_resize", mask}, {"resource2_resize", mask}, {"resource3_resize", mask}, {"resource4_resize", mask}, {"resource5_resize", mask},
		{"current_link_speed", speed}, {"current_link_width", number}, {"max_link_speed", speed}, {"max_link_width", number}, {"dma_mask_bits", number}, {"subsystem_vendor", anID}, {"subsystem_device", anID},
		{"power/runtime_status", power}, {"d3cold_allowed", answer},
		{"aer_dev_fatal", aer}, {"aer_dev_nonfatal", aer}, {"aer_dev_correctable", aer}, {"mem_info_vram_total", number}, {"mem_info_vis_vram_total", number},
		{"iommu_group", exists}, {"physfn", exists}, {"p2pmem", exists}, {"p2pmem/size", number}, {"nvme/*/cmb", buffer}, {"behaviour", behaviour}, {"pin_rule", pinRule}, {"virtio*/driver", exists}, {"drm/*", exists},
		{"net/*/bonding_slave/state", slave},
	}
)
