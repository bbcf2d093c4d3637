// SPDX-License-Identifier: Apache-2.0

package product

import "fmt"

// The driver series at which NVIDIA's rules change.
const (
	firstDMABuf     = 515 // the first open kernel modules
	firstSLICheck   = 570
	firstVGPUDMABuf = 580
)

// noGSP is what the driver prints when the GPU reports no firmware.
const noGSP = "N/A"

// nvidiaLimits are the facts that remove routes from one GPU.
func nvidiaLimits(f Facts, m model) (all []limit) {
	series := Evidence{fileVersion, fmt.Sprintf("series %d", f.Series)}
	guest := "the machine is a guest"
	if f.Virtual == Unknown {
		guest = "whether the machine is a guest is not known"
	}
	vgpu := m.line == vGPUCompute || m.line == vGPUOther
	switch {
	case f.Confidential == Yes:
		all = append(all, limit{dmabuf: No, peermem: No,
			why:    "confidential computing, or protected mode, closes the GPU's memory to NICs: data goes through encrypted buffers of the host",
			change: "turn confidential computing off, or send from host memory",
			source: "open-gpu-kernel-modules gpuIsApmFeatureEnabled(), confComputeConstructEngine(); NVIDIA/nvtrust#22; NVIDIA Trusted Computing Solutions release notes",
			by:     f.encryption(),
		})
	case f.Confidential == Unknown && m.cc && f.Virtual != No:
		all = append(all, limit{dmabuf: Unknown, peermem: Unknown,
			why:    guest + ", and whether its memory is encrypted, and so whether this GPU is in the mode of confidential computing, is not known",
			read:   "look again as root: the kernel's log says it; or ask NVML: nvmlSystemGetConfComputeState()",
			source: "open-gpu-kernel-modules confComputeConstructEngine(); NVIDIA/nvtrust#30, #61: the mode needs a confidential virtual machine",
			by:     f.encryption(),
		})
	}
	if vgpu && f.Virtual != Yes {
		all = append(all, limit{dmabuf: Unknown, peermem: Unknown,
			why:    "the model is a vGPU type, and whether the machine is a guest is not known",
			read:   "ask the hypervisor whether the machine is a guest",
			source: namesOf595 + ": the name is a guest's",
		})
	}
	if f.Arch == "ppc64le" {
		all = append(all, limit{dmabuf: No, peermem: Yes,
			why:    "NVIDIA's driver exports no dma-bufs on ppc64le",
			change: "register memory through nvidia-peermem",
			source: "open-gpu-kernel-modules subdevice_ctrl_gpu_kernel.c INDEX_DMABUF_CAPABILITY",
			by:     []Evidence{{fileCPU, f.Arch}},
		})
	}
	switch {
	case f.Series == 0:
		all = append(all, limit{dmabuf: Unknown, peermem: Yes,
			why:    "the series of NVIDIA's driver was not read, and dma-bufs depend on it",
			read:   "read " + fileVersion,
			source: "open-gpu-kernel-modules 515.43.04",
		})
	case f.Series < firstDMABuf:
		all = append(all, limit{dmabuf: No, peermem: Yes,
			why:    "NVIDIA's driver exports dma-bufs from series 515 on",
			change: "install a newer driver with the open kernel modules",
			source: "open-gpu-kernel-modules 515.43.04",
			by:     []Evidence{series},
		})
	case vgpu && f.Series < firstVGPUDMABuf:
		all = append(all, limit{dmabuf: No, peermem: Yes,
			why:    "NVIDIA's driver exports dma-bufs of a vGPU from series 580 on",
			read:   askCUDA,
			change: "install a driver of series 580 or newer in the guest",
			source: "open-gpu-kernel-modules 575.51.02 and 580.65.06 subdevice_ctrl_gpu_kernel.c",
			by:     []Evidence{series},
		})
	}
	switch {
	case f.OpenModules == No:
		all = append(all, limit{dmabuf: No, peermem: Yes,
			why:    "NVIDIA's proprietary kernel modules export no dma-bufs",
			change: "install the open kernel modules",
			source: "microsoft/mscclpp#657; open-gpu-kernel-modules nv-dmabuf.c",
			by:     []Evidence{{fileVersion, "not the open kernel modules"}},
		})
	case f.OpenModules == Unknown && f.Firmware == noGSP:
		all = append(all, limit{dmabuf: Unknown, peermem: Yes,
			why:    "the GPU reports no GSP firmware: the proprietary modules drive it, or no program has opened it since the driver was loaded",
			read:   "read " + fileVersion,
			source: "open-gpu-kernel-modules osinit.c RmGetFirmwareVersion(), nv-procfs.c",
			by:     []Evidence{{fileModel, "GPU Firmware: " + f.Firmware}},
		})
	}
	switch {
	case f.SLI == Yes && (f.Series == 0 || f.Series >= firstSLICheck):
		all = append(all, limit{dmabuf: No, peermem: Yes,
			why:    "NVIDIA's driver exports no dma-bufs of GPUs in an SLI group",
			change: "turn SLI off",
			source: "open-gpu-kernel-modules osapi.c RmDmabufGetClientAndDevice()",
		})
	case f.SLI == Yes:
		all = append(all, limit{dmabuf: Unknown, peermem: Yes,
			why:    "the GPU is in an SLI group, which NVIDIA's driver does not check for before series 570",
			read:   askCUDA,
			change: "turn SLI off",
			source: "open-gpu-kernel-modules osapi.c of 565 and 570",
			by:     []Evidence{series},
		})
	}
	return all
}

// encryption is what was read of the encryption of the guest's memory.
func (f Facts) encryption() []Evidence {
	if f.Encryption.File == "" {
		return nil
	}
	return []Evidence{f.Encryption}
}
