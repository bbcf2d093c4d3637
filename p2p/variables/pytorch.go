// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const expandableSource = "kvcache-ai/Mooncake#351, #2511, #3538; pytorch/pytorch#153688, #192330; uccl-project/uccl#839; ai-dynamo/nixl#1754"

var pytorchEntries = []entry{
	allocator("PYTORCH_CUDA_ALLOC_CONF", "", NVIDIA, "the name of before 2.9"),
	allocator("PYTORCH_ALLOC_CONF", "2.9", NVIDIA, "2.9.1 ignores expandable_segments in it (pytorch/pytorch#183387)"),
	allocator("PYTORCH_HIP_ALLOC_CONF", "", AMD, "the name of ROCm builds"),
}

// allocator is a variable of PyTorch's allocator.
func allocator(name, since string, vendor Vendor, note string) entry {
	return entry{Variable: Variable{
		Name: name, Library: "PyTorch", Since: since, Default: "expandable_segments:False",
		Effect: "expandable_segments:True: memory comes from the virtual memory API; ibv_reg_mr() of it ends with EFAULT; " + note,
		Source: expandableSource,
	}, vendors: []Vendor{vendor}, set: func(j *judging, value string) verdict {
		on := false
		for _, option := range list(value) {
			key, v, _ := strings.Cut(option, ":")
			if strings.TrimSpace(key) == "expandable_segments" {
				on = strings.EqualFold(strings.TrimSpace(v), "true")
			}
		}
		switch {
		case !on:
			return pass("memory comes from the usual allocation, which every route registers")
		case j.direct(vendor) == placement.No:
			return pass("memory is in expandable segments, and no pair of this machine is direct")
		case j.DMABuf == placement.No:
			return warn("memory is in expandable segments, and this machine has no dma-buf route: ibv_reg_mr() of it ends with EFAULT").away()
		case j.uses("MC_", peermem) && j.atLeast("Mooncake", 0, 3, 13) != placement.Yes:
			return warn("memory is in expandable segments, of which Mooncake up to 0.3.12.post1 cannot register a part: EFAULT, or EINVAL by dma-buf").away()
		case j.DMABuf == placement.Yes:
			return pass("memory is in expandable segments: programs register it by dma-buf, as this machine allows; ibv_reg_mr() of it ends with EFAULT")
		}
		return open("memory is in expandable segments, for which programs need dma-bufs; whether there is a route is not known")
	}}
}
