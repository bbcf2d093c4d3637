// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"path/filepath"
	"slices"
	"strings"
)

// mayPass are files whose loss or change is an answer of its own, by the check and
// the mangling: "" is any. Names are patterns. No test reads the reason.
var mayPass = []struct{ check, file, how, why string }{
	{"", "cmdline", "empty half", "the command line of a kernel may have nothing in it, or less"},
	{"", "environ", "empty half", "so may the environment"},
	{"", "kmsg", "half", "a log that has said less"},
	{"", "cgroup", "half", "another group's name"},
	{"", "mem_info_vram_total", "half", "half of a number is a number"},
	{"", "class", "half", "half of a number is a number, of a device that is no GPU"},
	{"", "resource0_resize", "absent", "the BAR cannot be resized"},
	{"", "numa_balancing", "absent", "the kernel has none"},
	{"", "allow_unsafe_interrupts", "absent", "the module is not loaded"},
	{"", "sys", "absent directory", "a machine without devices"},
	{"", "devices", "absent directory", "a machine without PCI"},
	{"", "infiniband", "absent directory", "a machine without RDMA devices"},
	{"", "0000:??:??.?", "absent directory", "the device is gone"},
	{"", "mlx5_?", "absent directory", "the device is gone, or tells nothing"},
	{"", "bnxt_re?", "absent directory", "the device is gone, or tells nothing"},
	{"", "ports", "", "NIC-STATE says that no port can be read"},
	{"", "gids", "", "NET-GID says that the table cannot be read; it names the network devices"},
	{"", "taint", "empty", "the module is the kernel's own"},
	{"", "runtime_status", "absent", "the kernel has no runtime power management"},
	{"", "nvidia_peermem", "absent", "the module is not loaded"},
	{"", "netns_mode", "absent", "the module is not loaded"},
	{"", "pcie_p2p", "absent", "the driver has no such parameter"},
	{"", "vram_bar_size", "absent", "the driver has no such parameter, and the BAR is whole"},
	{"", "p2pmem", "absent", "the function gives no memory to others"},
	{"", "memory_peers", "absent", "ib_core has no such interface"},
	{"", "physfn", "absent", "it is no virtual function"},
	{"", "rdma.max", "absent", "the group has no such controller"},
	{"", "accel", "absent directory", "the GPU has no such device file"},
	{"", "mig", "absent directory", "the GPU has no instances"},
	{"", "driver", "", "a device without a driver, or of another, which other checks say"},
	{"NV-MIG", "capabilities", "directory", "the driver has none"},
	{"KRN-VERSION", "osrelease", "half", "another release"},
	{"KRN-CFG-MOVE-NOTIFY", "config-7.2.12+deb13-amd64", "", "7.2 needs no such option, and no kernel of 7.2 has a file that says otherwise"},
	{"AMD-PARAM", "amdgpu", "directory", "the driver has no such parameter"},
	{"ISO-GROUP", "iommu_group", "absent", "there is no IOMMU"},
	{"ISO-IOMMU-MODE", "iommu_group", "absent", "there is no IOMMU"},
	{"NIC-FW", "fw_ver", "absent", "the driver tells none"},
	{"NIC-FW", "board_id", "absent empty noise half", "a board of another kind, whose firmware is another"},
	{"ENV-CONTAINER", ".dockerenv", "absent unreadable", "only its name says something, and a copy may lack it"},
	{"ENV-CONTAINER", "cgroup", "absent", "a kernel without control groups; the namespaces are asked"},
	{"ENV-CONTAINER", "mnt", "", "the file system at the root decides then, and no machine here has an overlay there"},
	{"NIC-DATADIRECT", "mlx5_ib", "absent directory", "the driver has no function"},
	{"NIC-DATADIRECT", "device", "half", "half of a number is a number, of another card"},
	{"LIB-UCX-ENV", "net", "", "whether a NIC is a LAG is not known then, which NIC-LAG says; UCX's default is right elsewhere"},
	{"LIB-UCX-ENV", "bond0", "", "whether a NIC is a LAG is not known then, which NIC-LAG says; UCX's default is right elsewhere"},
	{"CTR-LIBS", "libibverbs.so.1.*", "absent", "there is one libibverbs less"},
	{"CTR-LIBS", "lib", "absent directory", "a directory of libraries less"},
	{"CTR-LIBS", "lib*-rdmav*.so", "empty half", "that it is there is what is asked"},
	{"P2P-NV-FORCEPCIE", "iommu_group", "absent", "there is no IOMMU, and the driver compares nothing"},
	{"K8S-PLUGIN", "var", "directory", "there is no kubelet"},
	{"K8S-PLUGIN", "device-plugins", "absent directory", "there is no kubelet, or it has not started yet"},
	{"PCIE-LINK", "cpuinfo", "", "whether this is a guest is not known then, which ENV-VM says"},
	{"PCIE-LINK", "kmsg", "", "the links themselves are asked; the log says it of some once more"},
	{"PCIE-AER", "kmsg", "", "the counters are asked; the log says it of some once more"},
	{"PCIE-BAR-ASSIGNED", "kmsg", "", "a GPU with a BAR need not have another"},
}

// Excused reports that a check of p2p's may pass where it did not, for what became
// of a file: "absent", "unreadable", "empty", "noise", "half" or "directory".
func Excused(check, name, how string) bool {
	return slices.ContainsFunc(mayPass, func(e struct{ check, file, how, why string }) bool {
		return (e.check == "" || e.check == check) && matches(e.file, filepath.Base(name)) && (e.how == "" || slices.Contains(strings.Fields(e.how), how))
	})
}

func matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}
