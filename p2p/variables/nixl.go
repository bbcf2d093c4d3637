// SPDX-License-Identifier: Apache-2.0

package variables

import "strconv"

// nixlEntries are NIXL's own. Its UCX backend sets UCX variables that the environment
// does not set: UCX_IB_PCI_RELAXED_ORDERING=try, UCX_MAX_RMA_RAILS=2, UCX_RNDV_THRESH=inf,
// with UCX 1.21 UCX_MAX_HCA_PER_GPU=auto. The libfabric backend has no way to copy GPU
// memory: it needs GPUDirect RDMA.
var nixlEntries = []entry{
	{Variable: Variable{
		Name: "NIXL_CONFIG_FILE", Library: "NIXL", Since: "1.1.0", Default: "$HOME/.nixl.cfg, else /etc/nixl.cfg",
		Effect: "a file with NIXL's options; the environment wins over it",
		Source: "nixl src/utils/common/configuration.cpp; docs/nixl.md",
	}, set: func(*judging, string) verdict {
		return open("NIXL takes options that the environment does not set from this file, which was not read")
	}},
	{Variable: Variable{
		Name: "NIXL_PLUGIN_DIR", Library: "NIXL", Since: "0.1.0", Default: "plugins beside the library",
		Effect: "the directory of the backends: which UCX and which libfabric carry the data",
		Source: "nixl src/core/nixl_plugin_manager.cpp",
	}, set: func(*judging, string) verdict {
		return open("NIXL loads its backends, and by them UCX and libfabric, from this directory, which was not read")
	}},
	{Variable: Variable{
		Name: "NIXL_LIBFABRIC_MAX_BW_PER_DRAM_SEG", Library: "NIXL", Since: "1.0.0", Default: "as much as the PCI switches of the NUMA node carry",
		Effect: "the bandwidth in Gb/s for buffers in system memory, by which NIXL chooses EFA devices; GPU memory is not concerned",
		Source: "nixl src/plugins/libfabric/README.md; src/utils/libfabric/libfabric_rail_manager.cpp",
	}, driver: efa, set: func(j *judging, value string) verdict {
		if _, err := strconv.ParseUint(value, 10, 64); err != nil {
			return misread("NIXL", "a number in Gb/s")
		}
		return pass("NIXL chooses EFA devices for system memory by it; those for GPU memory stay as they are")
	}},
}
