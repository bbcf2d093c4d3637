// SPDX-License-Identifier: Apache-2.0

package p2p_test

// harmlessMutations change facts that bear on no link of a pair. Speeds and programs are the
// checks' business.
func harmlessMutations() []mutation {
	const speed = "a slow link carries the same bytes"
	ofNIC := func(name, text string) func(*bed) {
		return func(b *bed) { b.put(b.dir(b.s.at)+"/"+name, text) }
	}
	port := func(name, text string) func(*bed) {
		return func(b *bed) { b.put(b.dir(b.s.at)+"/infiniband/"+b.s.nic+"/ports/1/"+name, text) }
	}
	return []mutation{
		{"the NIC's link is slow", nil, both(ofNIC("current_link_speed", "2.5 GT/s PCIe\n"), ofNIC("current_link_width", "1\n")), changesNothing, speed},
		{"the GPU's link is slow", nil, both(ofGPU("current_link_speed", "2.5 GT/s PCIe\n"), ofGPU("current_link_width", "1\n")), changesNothing, speed},
		{"the port is down", nil, both(port("state", "1: DOWN\n"), port("phys_state", "3: Disabled\n")), changesNothing, "memory is registered with a device, whatever its ports do"},
		{"the port is of the other layer", nil, port("link_layer", "Acme\n"), changesNothing, "memory is registered with a device, whatever its ports do"},
		{"the port's rate is noise", nil, port("rate", "fast\n"), changesNothing, speed},
		{"the MTU is small", nil, func(b *bed) { b.put("sys/class/net/eth0/mtu", "576\n") }, changesNothing, "messages are cut into more packets"},
		{"links had errors", nil, both(ofNIC("aer_dev_correctable", "TOTAL_ERR_COR 99\n"), ofGPU("aer_dev_correctable", "TOTAL_ERR_COR 99\n"), ofNIC("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 9\n")), changesNothing, "a counter does not say what was lost: PCIE-AER warns of it"},
		{"the program may lock little memory", nil, func(b *bed) {
			b.put("proc/self/limits", "Max locked memory         65536                65536                bytes\n")
		}, changesNothing, "the limit is a program's: LIM-MEMLOCK names it"},
		{"the program has no capability", nil, func(b *bed) { b.put("proc/self/status", "Name:\tp2pcheck\nCapEff:\t0000000000000000\n") }, changesNothing, "what it does not see is unread in the other files"},
		{"the environment turns GPUDirect RDMA off", nil, func(b *bed) {
			b.put("proc/self/environ", "NCCL_DMABUF_ENABLE=0\x00NCCL_NET_GDR_LEVEL=LOC\x00UCX_IB_GPU_DIRECT_RDMA=n\x00")
		}, changesNothing, "variables are a program's: package variables judges them"},
		{"NUMA balancing is on", nil, func(b *bed) { b.put("proc/sys/kernel/numa_balancing", "1\n") }, changesNothing, "rccl#1377: a program's speed"},
		{"the kernel is locked down", nil, func(b *bed) { b.put("sys/kernel/security/lockdown", "none integrity [confidentiality]\n") }, changesNothing, "it keeps tracing away, and no registration"},
		{"the kernel has no types to trace by", nil, func(b *bed) { b.drop("sys/kernel/btf") }, changesNothing, "tracing alone needs them"},
		{"no library of the NIC's vendor is there", nil, func(b *bed) {
			b.drop("etc/libibverbs.d")
			b.drop("usr/lib64")
		}, changesNothing, "libraries are a container's: LIB-PROVIDER names them"},
		{"the processor's microcode is another", nil, func(b *bed) { b.put("proc/cpuinfo", cpuWith(b, "microcode\t: 0xffffffff")) }, changesNothing, "no rule goes by it"},
		{"the NIC's packets are small", nil, func(b *bed) { b.space(b.s.at, "devctl=0x0010") }, changesNothing, speed},
		{"the NIC has atomics", nil, func(b *bed) { b.space(b.s.at, "devctl2=0x40") }, changesNothing, "atomics are no part of a registration"},
		{"the NIC's power management is another", nil, ofNIC("power/control", "auto\n"), changesNothing, "the NIC's driver keeps the function awake"},
		{"the serial numbers are others", nil, ofNIC("infiniband/x/node_guid", "0000:0000:0000:0001\n"), changesNothing, "no rule goes by it"},
		{"the GPU's revision is another", nil, ofGPU("revision", "0xff\n"), changesNothing, "no rule goes by it"},
		{"the GPU's subsystem is another", nil, both(ofGPU("subsystem_vendor", "0xffff\n"), ofGPU("subsystem_device", "0xffff\n")), changesNothing, "NVIDIA's driver names the model by it, and the name decides"},
		{"a display of the board is beside them", nil, func(b *bed) { b.put("sys/module/ast/taint", "\n") }, changesNothing, "its driver is no part of the pair"},
		{"amdgpu's parameter for GPUs among themselves is off", isAMD, func(b *bed) { b.put("sys/module/amdgpu/parameters/pcie_p2p", "N\n") }, changesNothing, "amdgpu_device.c amdgpu_device_is_peer_accessible() is for GPUs among themselves; amdgpu_dma_buf_attach() does not ask"},
	}
}

// cpuWith is cpuinfo with one more line of the first processor.
func cpuWith(b *bed, line string) string { return line + "\n" + b.read("proc/cpuinfo") }
