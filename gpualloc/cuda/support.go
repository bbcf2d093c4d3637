// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// support asks whether the GPU exports dma-bufs, and finds out why not. The
// attribute alone says 0 and no more.
func (s *session) support(d Device, env gpualloc.Env) Support {
	if s.drv.missing(exportFunction) {
		return Support{
			Why:    []string{fmt.Sprintf("the driver is of CUDA %s and has no %s", versionText(s.version), exportFunction)},
			Remedy: "install a driver of CUDA 11.7 (R515) or later, with the open kernel modules",
		}
	}
	v, r := s.drv.attribute(attrDMABufSupported, d.dev)
	if r == Success && v != 0 {
		return Support{OK: true}
	}
	out := Support{}
	if r != Success {
		out.Why = append(out.Why, fmt.Sprintf("the driver does not know CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: %v", r))
	}
	for _, cause := range causes(s.version, d, env) {
		out.Why = append(out.Why, cause.why)
		if out.Remedy == "" {
			out.Remedy = cause.remedy
		}
	}
	if len(out.Why) == 0 {
		out.Why = []string{"CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0, and none of the causes that can be seen from here applies"}
		out.Remedy = "causes that remain: confidential computing is on, a vGPU guest, or a GPU or architecture without it"
	}
	return out
}

type cause struct{ why, remedy string }

// causes lists the known causes of an attribute of 0 that the machine's files show. A
// file that cannot be read is no cause.
func causes(version int, d Device, env gpualloc.Env) []cause {
	var out []cause
	if version < versionOfDMABuf {
		out = append(out, cause{
			fmt.Sprintf("the driver is of CUDA %s: dma-bufs need 11.7 (R515)", versionText(version)),
			"install a newer driver, with the open kernel modules",
		})
	}
	proc := procfs.New(env.Proc)
	if text, err := os.ReadFile(proc.Path("driver/nvidia/version")); err == nil {
		// Early open modules say "Open Kernel Module", the others "Kernel Module".
		if !strings.Contains(string(text), "Open Kernel Module") {
			out = append(out, cause{
				"the kernel modules are the proprietary ones, which export no dma-bufs",
				"install the open kernel modules (Turing and later), or use nvidia-peermem",
			})
		}
	} else if taint, err := sysfs.New(env.Sys).ReadString("module/nvidia/taint"); err == nil && strings.Contains(taint, "P") {
		out = append(out, cause{
			"the nvidia module taints the kernel as proprietary: it is not the open one, which alone exports dma-bufs",
			"install the open kernel modules (Turing and later), or use nvidia-peermem",
		})
	}
	if d.Compute[0] != 0 && (d.Compute[0] < 7 || d.Compute[0] == 7 && d.Compute[1] < 5) {
		out = append(out, cause{
			fmt.Sprintf("compute capability %d.%d is older than Turing (7.5), and the open kernel modules do not drive it", d.Compute[0], d.Compute[1]),
			"use nvidia-peermem",
		})
	}
	if text, err := os.ReadFile(proc.Path("filesystems")); err == nil && !strings.Contains(string(text), "dmabuf") {
		out = append(out, cause{"the kernel has no dma-bufs", "use a kernel with CONFIG_DMA_SHARED_BUFFER"})
	}
	dev := env.Dev
	if dev == "" {
		dev = "/dev"
	}
	if _, err := os.Stat(filepath.Join(dev, "dxg")); err == nil {
		out = append(out, cause{"this is WSL, whose driver exports no dma-bufs", "use Linux on the machine itself"})
	}
	return out
}
