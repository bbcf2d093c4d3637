// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

const nvidiaParams = "proc/driver/nvidia/params"

// param sets a parameter of NVIDIA's driver; "" takes its line away.
func param(name, value string) func(*bed) {
	return func(b *bed) {
		text := ""
		for line := range strings.Lines(b.read(nvidiaParams)) {
			if !strings.HasPrefix(line, name+":") {
				text += line
			}
		}
		if value != "" {
			text += name + ": " + value + "\n"
		}
		b.put(nvidiaParams, text)
	}
}

// series runs NVIDIA's driver of another version.
func series(version string) func(*bed) {
	return func(b *bed) {
		was := strings.TrimSpace(b.read("sys/module/nvidia/version"))
		b.put("sys/module/nvidia/version", version+"\n")
		text := b.read("proc/driver/nvidia/version")
		if was == "" { // the copy has it in one place
			for _, word := range strings.Fields(text) {
				if strings.Count(word, ".") >= 1 && word[0] >= '4' && word[0] <= '9' {
					was = word
				}
			}
		}
		b.put("proc/driver/nvidia/version", strings.ReplaceAll(text, was, version))
	}
}

// gated reports NVIDIA's driver with a topology gate.
func gated(s *subject) bool { return s.exporter == nvidia && s.series >= 580 }

// ungated reports one from before it.
func ungated(s *subject) bool { return s.exporter == nvidia && s.series < 580 }

func attachMutations() []mutation {
	const (
		gate     = "open-gpu-kernel-modules nv-pci.c nv_grdma_pci_topology_supported(), from 580 on"
		denies   = gate + ": NV_REG_GRDMA_PCI_TOPO_CHECK_OVERRIDE_DENY_ACCESS"
		notAsked = gate + " returns before it looks at the parameter where the memory is coherent"
		cdmm     = "open-gpu-kernel-modules nv-procfs.c, CoherentGPUMemoryMode: \"driver\" keeps the memory out of the kernel's pages"
		noSeries = "nv-dmabuf.c of this series was not read"
		sleep    = "amdgpu_dma_buf.c amdgpu_dma_buf_attach(): newer ones allow no peer-to-peer while the GPU sleeps"
		silent   = "PCI Express: a function that is gone answers each read with ones"
	)
	dkms := is(amdDKMS)
	return []mutation{
		{"the gate is closed by its parameter", gated, param("GrdmaPciTopoCheckOverride", "2"), breaks(chain.Refused, chain.Attach), denies},
		{"the gate's parameter is one that no source has", gated, param("GrdmaPciTopoCheckOverride", "7"), goes(chain.Attach), denies},
		{"the gate's parameter is not in the file", gated, param("GrdmaPciTopoCheckOverride", ""), goes(chain.Attach), denies},
		{"the driver's parameters cannot be read, and the gate goes by one", gated, func(b *bed) { b.deny(nvidiaParams) }, unsure(chain.Attach), denies},
		{"the driver's parameters are not there, and the gate goes by one", gated, func(b *bed) { b.drop(nvidiaParams) }, unsure(chain.Attach), denies},
		{"the driver's parameters are empty, and the gate goes by one", gated, func(b *bed) { b.put(nvidiaParams, "") }, unsure(chain.Attach), denies},
		{"the gate is opened by its parameter", gated, param("GrdmaPciTopoCheckOverride", "1"), staysDirect, gate},
		{"the gate's parameter, of a driver that has no gate", ungated, param("GrdmaPciTopoCheckOverride", "2"), changesNothing, "nv-pci.c up to 575: the parameter is for the PCIe mapping only"},
		{"the gate's parameter, of coherent memory", is(coherent), param("GrdmaPciTopoCheckOverride", "2"), changesNothing, notAsked},
		{"the driver keeps coherent memory to itself", is(coherent), param("CoherentGPUMemoryMode", `"driver"`), goes(chain.Attach), cdmm},
		{"the driver's parameters are cut before the mode of coherent memory", is(coherent), func(b *bed) {
			b.put(nvidiaParams, "ResmanDebugLevel: 4294967295\nDmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\n")
		}, unsure(chain.Attach), cdmm},
		{"the driver's parameters are cut in the mode of coherent memory", is(coherent), func(b *bed) { b.put(nvidiaParams, "DmaRemapPeerMmio: 1\nCoherentGPUMemoryMode:") }, unsure(chain.Attach), cdmm},
		{"the driver's parameters are cut within a line", is(coherent), func(b *bed) { b.put(nvidiaParams, "DmaRemapPeerMmio: 1\nGrdmaPciTopo") }, unsure(chain.Attach), cdmm},
		{"the driver's parameters are whole", is(coherent), func(b *bed) {
			b.put(nvidiaParams, "ResmanDebugLevel: 4294967295\nDmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nCoherentGPUMemoryMode: \"\"\nRegistryDwords: \"\"\nExcludedGpus: \"\"\n")
		}, staysDirect, cdmm},
		{"the driver's parameters are empty, and the memory is coherent", is(coherent), func(b *bed) { b.put(nvidiaParams, "") }, unsure(chain.Attach), cdmm + "; tar copies files of procfs as empty ones"},
		{"the driver's parameters cannot be read, and the memory is coherent", is(coherent), func(b *bed) { b.deny(nvidiaParams) }, unsure(chain.Attach), cdmm},
		{"the driver's mode of coherent memory, of a GPU without", is(nvidia), param("CoherentGPUMemoryMode", `"driver"`), changesNothing, cdmm},

		{"the driver is of a series that was not read", isNVIDIA, series("620.10.01"), unsure(chain.Attach), noSeries},
		{"the driver is of a series between two that were read", isNVIDIA, series("585.01.02"), unsure(chain.Attach), noSeries},
		{"the driver is from before dma-bufs", all(isNVIDIA, byDMABuf, noPeer), series("470.256.02"), goes(chain.Library, chain.Attach), "open-gpu-kernel-modules 515.43.04 is the first"},
		{"the version of the driver is noise", isNVIDIA, both(
			func(b *bed) { b.put("sys/module/nvidia/version", "unknown\n") },
			func(b *bed) { b.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module\n") }), unsure(chain.Library, chain.Attach), noSeries},
		{"the version of the driver cannot be read", all(isNVIDIA, byDMABuf, noPeer), both(
			func(b *bed) { b.deny("sys/module/nvidia/version") },
			func(b *bed) { b.deny("proc/driver/nvidia/version") }), unsure(chain.Library, chain.Attach), noSeries},
		{"coherent memory with a driver from before its export", is(coherent), series("530.41.03"), goes(chain.Attach, chain.Fabric, chain.Addresses), "nv-dmabuf.c maps such memory by its pages from 535 on"},

		{"the GPU does not answer", nil, func(b *bed) { b.silence(b.s.gpu) }, goes(chain.Attach, chain.Decision, chain.Fabric), silent},
		{"the NIC does not answer", nil, func(b *bed) { b.silence(b.s.at) }, goes(chain.Attach, chain.Decision, chain.Fabric), silent},
		{"a port above the NIC does not answer", nil, func(b *bed) { b.silence(above(b, b.s.at)) }, goes(chain.Attach, chain.Decision, chain.Fabric), silent},
		{"a port above the GPU does not answer", nil, func(b *bed) { b.silence(above(b, b.s.gpu)) }, goes(chain.Attach, chain.Decision, chain.Fabric), silent},
		{"the root port above the NIC does not answer", nil, func(b *bed) { b.silence(rootPort(b, b.s.at)) }, goes(chain.Attach, chain.Decision, chain.Fabric), silent},

		{"amdgpu's GPU is suspended", is(amdgpu), ofGPU("power/runtime_status", "suspended\n"), goes(chain.Attach), sleep},
		{"amdgpu's GPU is about to be suspended", is(amdgpu), ofGPU("power/runtime_status", "suspending\n"), goes(chain.Attach), sleep},
		{"whether amdgpu's GPU is suspended cannot be read", is(amdgpu), func(b *bed) { b.deny(b.dir(b.s.gpu) + "/power/runtime_status") }, unsure(chain.Attach), sleep},
		{"the state of amdgpu's GPU is noise", is(amdgpu), ofGPU("power/runtime_status", "asleep?\n"), unsure(chain.Attach), sleep},
		{"NVIDIA's GPU is suspended", isNVIDIA, ofGPU("power/runtime_status", "suspended\n"), changesNothing, "nv-dmabuf.c nv_dma_buf_create(): nvidia_dev_get() wakes the GPU, and keeps it awake"},
		{"amdgpu is not the kernel's own", is(amdgpu), taint("amdgpu", "OE"), goes(chain.Attach), "ROCm's amdgpu has rules of its own: ScaleX-IO/uGDS#18"},
		{"the taint of amdgpu cannot be read", is(amdgpu), func(b *bed) { b.deny("sys/module/amdgpu/taint") }, unsure(chain.Attach), "ScaleX-IO/uGDS#18"},
		{"amdgpu is not in sysfs", is(amdgpu), func(b *bed) { b.drop("sys/module/amdgpu") }, goes(chain.Attach), "ScaleX-IO/uGDS#18"},
		{"amdgpu is the kernel's own, which has no peer-memory client", dkms, taint("amdgpu", ""), goes(chain.Route, chain.Decision, chain.Attach), "ROCm/amdgpu#102: the client is in ROCm's amdgpu only"},
	}
}
