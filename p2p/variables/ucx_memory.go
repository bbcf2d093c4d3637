// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// ucxMemoryEntries are about how UCX registers the memory of GPUs.
var ucxMemoryEntries = []entry{
	{Variable: Variable{
		Name: "UCX_CUDA_COPY_DMABUF", Library: "UCX", Since: "1.16", Default: "try",
		Effect: "n: UCX exports no dma-buf of CUDA memory",
		Source: "ucx src/uct/cuda/cuda_copy/cuda_copy_md.c",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if ofUCX(value) == placement.No {
			return j.instead(j.PeerMem, "UCX exports no dma-bufs", NVIDIA)
		}
		return j.exports(value)
	}},
	{Variable: Variable{
		Name: rocmDMABuf, Library: "UCX", Since: "1.16", Default: "no",
		Effect: "y: UCX exports dma-bufs of ROCm memory",
		Source: "ucx src/uct/rocm/copy/rocm_copy_md.c; openucx/ucx#9045, #11541",
	}, vendors: []Vendor{AMD}, set: func(j *judging, value string) verdict {
		if ofUCX(value) == placement.No {
			return j.instead(j.PeerMem, "UCX exports no dma-bufs", AMD)
		}
		if v := j.exports(value); v.result != ResultPass || j.Config == ConfigBoot || j.DMABuf != placement.Yes {
			return v
		}
		return open("UCX looks for CONFIG_DMABUF_MOVE_NOTIFY=y and CONFIG_PCI_P2PDMA=y in /boot/config-RELEASE, up to 1.22.0 nowhere else, where they are not or were not read")
	}, unset: func(j *judging) verdict {
		if j.direct(AMD) != placement.Yes || j.PeerMem != placement.No || j.DMABuf != placement.Yes {
			return verdict{}
		}
		return warn("UCX exports no dma-bufs of ROCm memory by default, and no peer-memory client is registered").so("turn dma-bufs on", rocmDMABuf+"=y")
	}},
	{Variable: Variable{
		Name: "UCX_CUDA_COPY_REG_WHOLE_ALLOC", Library: "UCX", Since: "1.12", Default: "auto: off on GPUs with a small BAR",
		Effect: "on: UCX registers the whole allocation around a buffer",
		Source: "ucx src/uct/cuda/cuda_copy/cuda_copy_md.c",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		switch {
		case strings.EqualFold(value, "auto") || strings.EqualFold(value, "try") || strings.EqualFold(value, "maybe"):
			return pass("UCX decides by the GPU")
		case ofUCX(value) == placement.Yes:
			return j.whole("UCX registers whole allocations")
		case ofUCX(value) == placement.No:
			return pass("UCX registers the buffers that the program uses")
		}
		return misread("UCX", "on, off or auto")
	}},
	{Variable: Variable{
		Name: "UCX_CUDA_COPY_MAX_REG_RATIO", Library: "UCX", Since: "1.12", Default: "0.1",
		Effect: "allocations below this part of the GPU's memory are registered as a whole",
		Source: "ucx src/uct/cuda/cuda_copy/cuda_copy_md.c",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		ratio, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
			return misread("UCX", "a number")
		case ratio <= 0.1:
			return pass("UCX registers small allocations as a whole")
		}
		return j.whole("UCX registers large allocations as a whole")
	}},
	{Variable: Variable{
		Name: "UCX_IB_GDA_DMABUF_ENABLE", Library: "UCX", Since: "1.21", Default: "try",
		Effect: "n: transfers that the GPU initiates register by a peer-memory client only",
		Source: "ucx src/uct/ib/base/ib_md.c; openucx/ucx#11083",
	}, vendors: []Vendor{NVIDIA}, driver: mlx5, set: func(j *judging, value string) verdict {
		if ofUCX(value) == placement.No {
			return j.instead(j.PeerMem, "UCX uses no dma-bufs for transfers that the GPU initiates", NVIDIA)
		}
		return j.exports(value)
	}},
}

const rocmDMABuf = "UCX_ROCM_COPY_DMABUF"

// exports is the verdict on y and try.
func (j *judging) exports(value string) verdict {
	try := strings.EqualFold(value, "try") || strings.EqualFold(value, "maybe")
	switch {
	case !try && ofUCX(value) != placement.Yes:
		return misread("UCX", ucxNumbers)
	case !try && j.DMABuf == placement.No:
		return fail("UCX wants dma-bufs, and no dma-buf route exists on this machine").away()
	case !try && j.DMABuf == placement.AnswerUnknown:
		return open("UCX wants dma-bufs; whether there is a route is not known")
	}
	return pass("UCX exports dma-bufs where the GPU's driver does")
}

// whole is the verdict on registrations of whole allocations.
func (j *judging) whole(does string) verdict {
	switch small := placement.Any(j.GPUs, func(g GPU) placement.Answer { return g.SmallBAR }); small {
	case placement.Yes:
		gpus := names(j.GPUs, func(g GPU) bool { return g.SmallBAR == placement.Yes }, func(g GPU) string { return g.Name })
		return warn("%s, and the BAR of %s is smaller than the memory: registrations fail when it is full", does, gpus).away()
	case placement.No:
		return pass("%s, and the BAR of each GPU is as large as the memory", does)
	}
	return open("%s; whether the BAR of each GPU is as large as the memory is not known", does)
}
