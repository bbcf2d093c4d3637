// SPDX-License-Identifier: Apache-2.0

package redact

// directories are those that every machine has on the way to the files of a snapshot.
var directories = setOf(`
	sys proc dev etc run usr lib lib64 local share var boot opt src kernels modules bin sbin libexec
	devices system node online cpu virtual platform soc faux bus pci drivers class kernel module parameters fs cgroup slots
	infiniband infiniband_verbs infiniband_mad infiniband_cm ports gids gid_attrs types ndevs hw_counters counters net bonding bonding_slave slaves drm kfd topology nodes io_links p2p_links caches mem_banks
	nvme nvme-subsystem p2pmem power mm memory_peers iommu_groups iommu iommus dmi id security lockdown btf vmlinux tracing events debug cxi mem accel amd_iommu
	driver device physfn iommu_group subsystem vendor config resource vpd state phys_state link_layer rate sm_lid node_type fw_ver board_id parent importer peer2peer ibdev abi_version
	operstate mtu gpu_id properties taint initstate version srcversion netns_mode pcie_p2p vram_bar_size allow_unsafe_interrupts topology_gate type sys_vendor product_name
	numa_node current_link_speed current_link_width max_link_speed max_link_width dma_mask_bits subsystem_vendor subsystem_device runtime_status d3cold_allowed
	aer_dev_fatal aer_dev_nonfatal aer_dev_correctable mem_info_vram_total mem_info_vis_vram_total size cmb behaviour pin_rule
	self ns user pid mnt cmdline cpuinfo config.gz kallsyms osrelease numa_balancing status limits environ mountinfo nvidia params gpus information capabilities mig vm
	shm kmsg nvidiactl hl0 accel0 kubelet device-plugins cdi libibverbs libibverbs.d pkgconfig libfabric.pc amazon efa modules.builtin .config .dockerenv .containerenv
	rdma.max rdma.current snapshot group docker kubepods containerd libpod lxc netns mq null 1
	random boot_id x86_64-linux-gnu aarch64-linux-gnu powerpc64le-linux-gnu riscv64-linux-gnu s390x-linux-gnu i386-linux-gnu`)

// aDirectory matches names that the kernel makes of numbers.
var aDirectory = expression(`^(?:\d{1,4}|[0-9a-f]{4,5}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]|pci[0-9a-f]{4,5}:[0-9a-f]{2}` +
	`|card\d{1,4}|renderD\d{1,4}|controlD\d{1,4}|uverbs\d{1,4}|node\d{1,4}|nvme\d{1,4}|virtio\d{1,4}|cxi\d{1,4}|resource\d(?:_resize)?|gpu\d{1,3}|gi\d{1,3}|ci\d{1,3}|kfd\d?|accel\d{1,3}` +
	`|[A-Z]{3,4}[0-9A-F]{4}:[0-9a-f]{2}|LNX[A-Z]{5}:[0-9a-f]{2}|libibverbs\.so\.1(?:\.\d{1,4}){1,6})$`)

// Shapes of values.
var (
	aNumber  = expression(`^-?(?:\d{1,20}|0x[0-9a-fA-F]{1,16})\s*$`)
	aHexID   = expression(`^0x[0-9a-fA-F]{1,8}\s*$`)
	aRegions = expression(`^0x[0-9a-fA-F]{1,16} 0x[0-9a-fA-F]{1,16} 0x[0-9a-fA-F]{1,16}\s*$`)
	aHexMask = expression(`^[0-9a-fA-F]{16}$`)
	aTaint   = expression(`^P?F?S?R?M?B?U?D?A?W?C?I?O?E?L?K?X?T?N?J?\s*$`)
	aVersion = expression(`^v?\d{1,6}[A-Za-z]?(?:[.:/-]\d{1,6}[a-z]?){0,7}\s*$`)
	// anIPv4 matches what may be an address.
	anIPv4     = expression(`(?:^|[^0-9.])((?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3})(?:$|[^0-9.])`)
	aSource    = expression(`^[0-9A-F]{23,33}\s*$`)
	aBoard     = expression(`^(?:(?:MT|LNV|DEL|HPE|HP|SM|IBM|NVD|FB|MSF|CIS|FJT|INS|HUA|QCT|ALI|ORC|AWS)_?\d{7,13}|BCM\d{4,7}(?:-[A-Z]\d{3,4}[A-Z]?)?|POLLARA-\dQ\d{3}P?)\s*$`)
	aSpeed     = expression(`^(?:\d{1,3}(?:\.\d)? GT/s(?: PCIe)?|Unknown(?: speed)?)\s*$`)
	aPort      = expression(`^\d: (?:NOP|DOWN|INIT|ARMED|ACTIVE|ACTIVE_DEFER|<unknown>|Sleep|Polling|Disabled|PortConfigurationTraining|LinkUp|LinkErrorRecovery|Phy Test|CA|switch|router|RNIC|usNIC|usNIC UDP|unspecified)\s*$`)
	aLinkRate  = expression(`^\d{1,4}(?:\.\d)? Gb/sec \(\d{1,2}X(?: [A-Z]{3}(?:10)?)?\)\s*$`)
	aCPUList   = expression(`^[0-9,-]{0,64}\s*$`)
	anAnswer   = expression(`^[YN01]\s*$`)
	aNamespace = expression(`^[a-z]{2,6}:\[\d{1,20}\]$`)
	aSize      = expression(`^size=\d{1,18}[kmg]?$`)
)
