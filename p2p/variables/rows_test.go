// SPDX-License-Identifier: Apache-2.0

package variables

// row is a variable with a value on a machine. The source of what is wanted is that of the
// variable in the catalogue.
type row struct {
	name, value string
	on          func() Facts
	want        Result
	set         string // the Set of the judgement
	env         map[string]string
	fixed       bool // the result needs no fact of the machine
}

func beside(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

const (
	ok  = ResultPass
	bad = ResultWarn
	err = ResultFail
	unk = ResultUnknown
)

// rows has each variable with a value that does harm on one machine, or whose effect there
// is not known, and is right on another.
var rows = []row{
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: dgx, want: bad},
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: peer, want: ok},
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: refused, want: ok},
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: mi300x, want: bad},
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: amdPeer, want: ok},
	{name: "NCCL_DMABUF_ENABLE", value: "0", on: ponteVecchio, want: ok},
	{name: "NCCL_DMABUF_ENABLE", value: "true", on: dgx, want: bad}, // strtoll() makes it 0
	{name: "NCCL_DMABUF_ENABLE", value: "true", on: peer, want: ok},
	{name: "NCCL_DMABUF_ENABLE", value: "", on: dgx, want: ok},

	{name: gdrLevel, value: "LOC", on: dgx, want: bad},
	{name: gdrLevel, value: "0", on: dgx, want: bad},
	{name: gdrLevel, value: "LOC", on: refused, want: ok},
	{name: gdrLevel, value: "PXB", on: dgx, want: ok},
	{name: gdrLevel, value: "PXB", on: rooted, want: bad, set: gdrLevel + "=PHB"},
	{name: gdrLevel, value: "PHB", on: rooted, want: ok},
	{name: gdrLevel, value: "PHB", on: twoNodes, want: bad, set: gdrLevel + "=SYS"},
	{name: gdrLevel, value: "3", on: twoNodes, want: bad, set: gdrLevel + "=SYS"},
	{name: gdrLevel, value: "SYS", on: twoNodes, want: ok},
	{name: gdrLevel, value: "9", on: twoNodes, want: ok},
	{name: gdrLevel, value: "PXB", on: gh200, want: bad},
	{name: gdrLevel, value: "PHB", on: gh200, want: ok},
	{name: gdrLevel, value: "P2C", on: gh200, want: ok},
	{name: gdrLevel, value: "P2C", on: gh200, want: bad, env: beside(gdrC2C, "0")},
	{name: gdrLevel, value: "P2C", on: gh200, want: ok, env: beside(gdrC2C, "1")},
	{name: gdrLevel, value: "PXB", on: gb300, want: ok},
	{name: gdrLevel, value: "sys", on: dgx, want: bad, fixed: true}, // NCCL compares with case

	{name: gdrC2C, value: "0", on: gh200, want: bad, set: gdrC2C + "=1"},
	{name: gdrC2C, value: "off", on: gh200, want: bad, set: gdrC2C + "=1"},
	{name: gdrC2C, value: "0", on: gb300, want: ok},
	{name: gdrC2C, value: "0", on: dgx, want: ok},
	{name: gdrC2C, value: "0", on: rooted, want: ok},
	{name: gdrC2C, value: "1", on: gh200, want: ok},

	{name: "NCCL_NET_GDR_READ", value: "0", on: dgx, want: bad},
	{name: "NCCL_NET_GDR_READ", value: "0", on: refused, want: ok},
	{name: "NCCL_NET_GDR_READ", value: "1", on: dgx, want: ok},

	{name: "NCCL_IB_DATA_DIRECT", value: "0", on: gb300, want: bad},
	{name: "NCCL_IB_DATA_DIRECT", value: "0", on: dgx, want: ok},
	{name: "NCCL_IB_DATA_DIRECT", value: "2", on: gb300, want: ok},

	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "0", on: rooted, want: bad},
	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "0", on: dgx, want: ok},
	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "0", on: onHaswell, want: ok},
	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "0", on: inVM, want: unk},
	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "1", on: rooted, want: ok},
	{name: "NCCL_IB_PCI_RELAXED_ORDERING", value: "1", on: onHaswell, want: ok},

	{name: "NCCL_NET_GDR_MLOPART", value: "0", on: partitioned, want: bad, set: "NCCL_NET_GDR_MLOPART=1"},
	{name: "NCCL_NET_GDR_MLOPART", value: "0", on: dgx, want: ok},
	{name: "NCCL_NET_GDR_MLOPART", value: "1", on: partitioned, want: ok},

	{name: "NCCL_CUMEM_ENABLE", value: "0", on: gb300, want: bad},
	{name: "NCCL_CUMEM_ENABLE", value: "0", on: dgx, want: ok},

	{name: "NCCL_P2P_DISABLE", value: "1", on: dgx, want: bad, fixed: true},
	{name: "NCCL_P2P_DISABLE", value: "1", on: bonded, want: ok},
	{name: "NCCL_P2P_DISABLE", value: "0", on: dgx, want: ok},
	{name: "NCCL_P2P_LEVEL", value: "LOC", on: dgx, want: bad, fixed: true},
	{name: "NCCL_P2P_LEVEL", value: "LOC", on: bonded, want: ok},
	{name: "NCCL_P2P_LEVEL", value: "SYS", on: dgx, want: ok},

	{name: "NCCL_TOPO_FILE", value: "/topo.xml", on: dgx, want: bad},
	{name: "NCCL_TOPO_FILE", value: "/topo.xml", on: p5, want: ok},

	{name: "NCCL_IB_DISABLE", value: "1", on: dgx, want: bad},
	{name: "NCCL_IB_DISABLE", value: "1", on: p5, want: ok},
	{name: "NCCL_IB_DISABLE", value: "1", on: refused, want: ok},
	{name: "NCCL_IB_DISABLE", value: "0", on: dgx, want: ok},

	{name: ncclHCA, value: "mlx5_0,mlx5_1", on: twoNodes, want: bad},
	{name: ncclHCA, value: "mlx5_0,mlx5_1", on: dgx, want: ok},
	{name: ncclHCA, value: "mlx5", on: dgx, want: ok},
	{name: ncclHCA, value: "=mlx5", on: dgx, want: bad},
	{name: ncclHCA, value: "mlx5_0", on: dgx, want: bad}, // without the nearest of gpu1
	{name: ncclHCA, value: "^mlx5_1", on: dgx, want: bad},
	{name: ncclHCA, value: "^bnxt_re0", on: dgx, want: ok},
	{name: ncclHCA, value: "^mlx5", on: dgx, want: bad, fixed: true},
	{name: ncclHCA, value: "mlx5_0:1,mlx5_1:1", on: dgx, want: ok},

	{name: "NCCL_IB_GID_INDEX", value: "3", on: shortTable, want: bad},
	{name: "NCCL_IB_GID_INDEX", value: "3", on: twoNodes, want: ok},
	{name: "NCCL_IB_GID_INDEX", value: "0", on: twoNodes, want: bad},
	{name: "NCCL_IB_GID_INDEX", value: "1", on: twoNodes, want: bad},
	{name: "NCCL_IB_GID_INDEX", value: "0", on: dgx, want: ok}, // InfiniBand
	{name: "NCCL_IB_GID_INDEX", value: "-1", on: twoNodes, want: ok},

	{name: "NCCL_NET", value: "IB", on: p5, want: err, fixed: true},
	{name: "NCCL_NET", value: "IB", on: dgx, want: ok},
	{name: "NCCL_NET", value: "Socket", on: dgx, want: bad},
	{name: "NCCL_NET", value: "Socket", on: refused, want: ok},
	{name: "NCCL_NET", value: "AWS Libfabric", on: p5, want: ok},
	{name: "NCCL_NET_PLUGIN", value: "none", on: p5, want: bad, fixed: true},
	{name: "NCCL_NET_PLUGIN", value: "none", on: dgx, want: ok},

	{name: forceRCCL, value: "0", on: newKernel, want: bad, set: forceRCCL + "=1"},
	{name: forceRCCL, value: "0", on: mi300x, want: ok},
	{name: forceRCCL, value: "1", on: noRoute, want: bad},
	{name: forceRCCL, value: "1", on: newKernel, want: ok},

	{name: "UCX_IB_GPU_DIRECT_RDMA", value: "n", on: dgx, want: bad},
	{name: "UCX_IB_GPU_DIRECT_RDMA", value: "n", on: refused, want: ok},
	{name: "UCX_IB_GPU_DIRECT_RDMA", value: "y", on: noRoute, want: err},
	{name: "UCX_IB_GPU_DIRECT_RDMA", value: "y", on: twoNodes, want: ok},
	{name: "UCX_IB_GPU_DIRECT_RDMA", value: "true", on: dgx, want: bad, fixed: true},

	{name: rndvScheme, value: "auto", on: twoNodes, want: bad, set: rndvScheme + "=get_zcopy"},
	{name: rndvScheme, value: "auto", on: dgx, want: ok},
	{name: rndvScheme, value: "auto", on: twoNodes, want: ok, env: beside("UCX_DISTANCE_BW", "auto,sys:11GBs")},
	{name: rndvScheme, value: "get_zcopy", on: twoNodes, want: ok},
	{name: rndvScheme, value: "put_ppln", on: dgx, want: bad},
	{name: rndvScheme, value: "put_ppln", on: refused, want: ok},

	{name: "UCX_DISTANCE_BW", value: "auto", on: twoNodes, want: bad},
	{name: "UCX_DISTANCE_BW", value: "auto", on: dgx, want: ok},
	{name: "UCX_DISTANCE_BW", value: "auto,sys:11GBs", on: twoNodes, want: ok},

	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "n", on: rooted, want: bad, set: "UCX_IB_PCI_RELAXED_ORDERING=y"},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "n", on: twoNodes, want: bad, set: "UCX_IB_PCI_RELAXED_ORDERING=y"},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "n", on: dgx, want: ok},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "auto", on: rooted, want: bad, set: "UCX_IB_PCI_RELAXED_ORDERING=y"},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "auto", on: twoNodes, want: ok},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "y", on: rooted, want: ok},
	{name: "UCX_IB_PCI_RELAXED_ORDERING", value: "try", on: rooted, want: ok},

	{name: "UCX_IB_DIRECT_NIC", value: "n", on: gb300, want: bad},
	{name: "UCX_IB_DIRECT_NIC", value: "n", on: dgx, want: ok},
	{name: "UCX_IB_DIRECT_NIC", value: "y", on: gb300, want: ok},

	{name: "UCX_NET_DEVICES", value: "mlx5_0:1,mlx5_1:1", on: twoNodes, want: bad},
	{name: "UCX_NET_DEVICES", value: "mlx5_0:1,mlx5_1:1", on: dgx, want: ok},
	{name: "UCX_NET_DEVICES", value: "mlx5_[0-1]:1", on: dgx, want: ok},
	{name: "UCX_NET_DEVICES", value: "eth0", on: dgx, want: bad},
	{name: "UCX_NET_DEVICES", value: "mlx5_0:1,mlx5_1:1,eth0", on: dgx, want: ok},
	{name: "UCX_NET_DEVICES", value: "all", on: dgx, want: ok},
	{name: "UCX_NET_DEVICES", value: "^mlx5_0:1", on: dgx, want: bad},
	{name: "UCX_NET_DEVICES", value: "^mlx5_0:2", on: dgx, want: ok},
	{name: "UCX_NET_DEVICES", value: "mlx5", on: dgx, want: bad}, // UCX wants whole names

	{name: "UCX_NET_DEVICES", value: "rxe0", on: withRXE, want: bad},
	{name: "UCX_NET_DEVICES", value: "^rxe0", on: withRXE, want: ok},

	{name: ucxTLS, value: "all", on: bonded, want: bad, set: "UCX_TLS=^gga_mlx5"},
	{name: ucxTLS, value: "all", on: dgx, want: ok},
	{name: ucxTLS, value: "ib,cuda", on: bonded, want: bad},
	{name: ucxTLS, value: "rc,cuda", on: bonded, want: ok},
	{name: ucxTLS, value: "^tcp", on: bonded, want: bad, set: "UCX_TLS=^tcp,gga_mlx5"},
	{name: ucxTLS, value: "^gga_mlx5", on: bonded, want: ok},
	{name: ucxTLS, value: "tcp,cuda", on: dgx, want: bad, fixed: true},
	{name: ucxTLS, value: "rc", on: dgx, want: bad, fixed: true},
	{name: ucxTLS, value: "rc,cuda", on: mi300x, want: bad, fixed: true},
	{name: ucxTLS, value: "rc,rocm", on: mi300x, want: ok},

	{name: "UCX_IB_GID_INDEX", value: "3", on: shortTable, want: bad},
	{name: "UCX_IB_GID_INDEX", value: "3", on: twoNodes, want: ok},
	{name: "UCX_IB_GID_INDEX", value: "auto", on: shortTable, want: ok},

	{name: "UCX_MAX_HCA_PER_GPU", value: "auto", on: nearRefused, want: bad},
	{name: "UCX_MAX_HCA_PER_GPU", value: "auto", on: dgx, want: ok},
	{name: "UCX_MAX_HCA_PER_GPU", value: "inf", on: nearRefused, want: ok},

	{name: "UCX_CUDA_COPY_DMABUF", value: "n", on: dgx, want: bad},
	{name: "UCX_CUDA_COPY_DMABUF", value: "n", on: peer, want: ok},
	{name: "UCX_CUDA_COPY_DMABUF", value: "n", on: amazon, want: bad}, // UCX looks for a client
	{name: "UCX_CUDA_COPY_DMABUF", value: "y", on: noRoute, want: err},
	{name: rocmDMABuf, value: "no", on: mi300x, want: bad},
	{name: rocmDMABuf, value: "no", on: amdPeer, want: ok},
	{name: rocmDMABuf, value: "y", on: mi300x, want: ok},
	{name: rocmDMABuf, value: "y", on: newKernel, want: unk},
	{name: "UCX_CUDA_COPY_REG_WHOLE_ALLOC", value: "on", on: t4, want: bad},
	{name: "UCX_CUDA_COPY_REG_WHOLE_ALLOC", value: "on", on: dgx, want: ok},
	{name: "UCX_CUDA_COPY_REG_WHOLE_ALLOC", value: "auto", on: t4, want: ok},
	{name: "UCX_CUDA_COPY_MAX_REG_RATIO", value: "1.0", on: t4, want: bad},
	{name: "UCX_CUDA_COPY_MAX_REG_RATIO", value: "1.0", on: dgx, want: ok},
	{name: "UCX_IB_GDA_DMABUF_ENABLE", value: "n", on: dgx, want: bad},
	{name: "UCX_IB_GDA_DMABUF_ENABLE", value: "n", on: peer, want: ok},
	{name: "UCX_IB_GDA_DMABUF_ENABLE", value: "n", on: p5, want: ok},

	{name: "FI_HMEM_DISABLE_P2P", value: "1", on: p5, want: bad},
	{name: "FI_HMEM_DISABLE_P2P", value: "1", on: refused, want: ok},
	{name: "FI_HMEM_DISABLE_P2P", value: "0", on: p5, want: ok},
	{name: "FI_HMEM", value: "system", on: p5, want: bad, set: "FI_HMEM=system;cuda", fixed: true},
	{name: "FI_HMEM", value: "system", on: headless, want: ok},
	{name: "FI_HMEM", value: "cuda", on: p5, want: ok},
	{name: "FI_HMEM", value: "cuda", on: mi300x, want: bad, set: "FI_HMEM=cuda;rocr", fixed: true},
	{name: "FI_HMEM_CUDA_USE_DMABUF", value: "0", on: dgx, want: bad},
	{name: "FI_HMEM_CUDA_USE_DMABUF", value: "0", on: peer, want: ok},
	{name: "FI_HMEM_ROCR_USE_DMABUF", value: "0", on: mi300x, want: bad},
	{name: "FI_HMEM_ROCR_USE_DMABUF", value: "0", on: amdPeer, want: ok},
	{name: "FI_HMEM_ZE_USE_DMABUF", value: "0", on: ponteVecchio, want: bad},
	{name: "FI_HMEM_ZE_USE_DMABUF", value: "0", on: dgx, want: ok},
	{name: "FI_HMEM_CUDA_USE_GDRCOPY", value: "1", on: t4, want: bad, set: "FI_HMEM_CUDA_USE_GDRCOPY=0"},
	{name: "FI_HMEM_CUDA_USE_GDRCOPY", value: "1", on: dgx, want: ok},
	{name: "FI_VERBS_USE_DMABUF", value: "no", on: dgx, want: err},
	{name: "FI_VERBS_USE_DMABUF", value: "no", on: peer, want: ok},
	{name: "FI_PROVIDER", value: "verbs", on: p5, want: bad, fixed: true},
	{name: "FI_PROVIDER", value: "verbs", on: dgx, want: ok},
	{name: "FI_PROVIDER", value: "efa", on: dgx, want: bad, fixed: true},
	{name: "FI_PROVIDER", value: "efa", on: p5, want: ok},
	{name: "FI_PROVIDER", value: "^tcp", on: p5, want: ok},
	{name: "FI_PROVIDER", value: "cxi", on: frontier, want: ok},
	{name: "FI_PROVIDER", value: "opx", on: omniPath, want: ok},
	{name: "FI_PROVIDER", value: "", on: dgx, want: ok},
	{name: "FI_VERBS_DEVICE_NAME", value: "mlx5", on: twoNodes, want: bad},
	{name: "FI_VERBS_DEVICE_NAME", value: "mlx5", on: dgx, want: ok},
	{name: "FI_VERBS_DEVICE_NAME", value: "MLX5_", on: dgx, want: ok},
	{name: "FI_EFA_IFACE", value: "rdmap16s27", on: p5, want: bad}, // without the nearest of gpu1
	{name: "FI_EFA_IFACE", value: "rdmap16s27", on: dgx, want: ok},
	{name: "FI_EFA_IFACE", value: "all", on: p5, want: ok},
	{name: "FI_EFA_USE_DEVICE_RDMA", value: "0", on: p5, want: bad},
	{name: "FI_EFA_USE_DEVICE_RDMA", value: "0", on: dgx, want: ok},
	{name: "FI_CXI_ATS", value: "1", on: ponteVecchio, want: bad},
	{name: "FI_CXI_ATS", value: "1", on: frontier, want: ok},
	{name: "FI_CXI_DISABLE_HMEM_DEV_REGISTER", value: "1", on: frontier, want: bad, fixed: true},
	{name: "FI_CXI_DISABLE_HMEM_DEV_REGISTER", value: "1", on: dgx, want: ok},
	{name: "FI_CXI_FORCE_ZE_HMEM_SUPPORT", value: "1", on: ponteVecchio, want: bad, set: "EnableImplicitScaling=0", fixed: true},
	{name: "FI_CXI_FORCE_ZE_HMEM_SUPPORT", value: "1", on: ponteVecchio, want: ok, env: beside("EnableImplicitScaling", "0")},
	{name: "FI_CXI_DEVICE_NAME", value: "cxi1", on: frontier, want: bad},
	{name: "FI_CXI_DEVICE_NAME", value: "cxi1", on: dgx, want: ok},
	{name: "FI_CXI_DEVICE_NAME", value: "cxi0", on: frontier, want: ok},

	{name: "OFI_NCCL_DISABLE_DMABUF", value: "1", on: p5, want: bad},
	{name: "OFI_NCCL_DISABLE_DMABUF", value: "1", on: peer, want: ok},
	{name: "OFI_NCCL_DISABLE_DMABUF", value: "1", on: amazon, want: ok},
	{name: "OFI_NCCL_DISABLE_DMABUF", value: "0", on: p5, want: ok},
	{name: "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", value: "1", on: p5, want: bad, fixed: true},
	{name: "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", value: "1", on: dgx, want: ok},

	{name: "NIXL_CONFIG_FILE", value: "/etc/nixl.toml", on: dgx, want: unk},
	{name: "NIXL_CONFIG_FILE", value: "/etc/nixl.toml", on: headless, want: ok},
	{name: "NIXL_PLUGIN_DIR", value: "/opt/plugins", on: dgx, want: unk},
	{name: "NIXL_PLUGIN_DIR", value: "/opt/plugins", on: offline, want: ok},
	{name: "NIXL_LIBFABRIC_MAX_BW_PER_DRAM_SEG", value: "100G", on: p5, want: bad, fixed: true},
	{name: "NIXL_LIBFABRIC_MAX_BW_PER_DRAM_SEG", value: "100G", on: dgx, want: ok},
	{name: "NIXL_LIBFABRIC_MAX_BW_PER_DRAM_SEG", value: "100", on: p5, want: ok},

	{name: peermem, value: "true", on: dgx, want: err, set: peermem + "=0"},
	{name: peermem, value: "true", on: peer, want: ok},
	{name: peermem, value: "0", on: peer, want: err, set: peermem + "=1"},
	{name: peermem, value: "0", on: dgx, want: ok},
	{name: peermem, value: "true", on: mi300x, want: ok}, // read in builds with CUDA only
	{name: "MC_IB_PCI_RELAXED_ORDERING", value: "0", on: rooted, want: bad, set: "MC_IB_PCI_RELAXED_ORDERING=1"},
	{name: "MC_IB_PCI_RELAXED_ORDERING", value: "0", on: dgx, want: ok},
	{name: "MC_IB_PCI_RELAXED_ORDERING", value: "1", on: rooted, want: ok},
	{name: "MC_IB_PCI_RELAXED_ORDERING", value: "3", on: rooted, want: bad, fixed: true},
	{name: forceTCP, value: "0", on: dgx, want: bad}, // only its presence counts
	{name: forceTCP, value: "0", on: refused, want: ok},
	{name: "MC_FORCE_HCA", value: "1", on: offline, want: err},
	{name: "MC_FORCE_HCA", value: "1", on: dgx, want: ok},
	{name: "MC_FORCE_MNNVL", value: "1", on: dgx, want: bad},
	{name: "MC_FORCE_MNNVL", value: "1", on: gb300, want: ok},
	{name: "MC_INTRANODE_NVLINK", value: "1", on: dgx, want: bad},
	{name: "MC_INTRANODE_NVLINK", value: "1", on: refused, want: ok},
	{name: tent, value: "1", on: dgx, want: bad},
	{name: tent, value: "1", on: peer, want: ok},
	{name: tent, value: "1", on: mi300x, want: ok},
	{name: tent, value: "1", on: loadedOnly, want: err},
	{name: tentOld, value: "1", on: dgx, want: bad},
	{name: tentOld, value: "1", on: peer, want: ok},
	{name: "MC_DISABLE_GPU_DIRECT_RDMA", value: "true", on: peer, want: bad},
	{name: "MC_DISABLE_GPU_DIRECT_RDMA", value: "true", on: refused, want: ok},
	{name: "MC_TENT_CONF", value: "{}", on: dgx, want: unk},
	{name: "MC_TENT_CONF", value: "{}", on: headless, want: ok},
	{name: "MOONCAKE_DISABLE_HIP_DMABUF", value: "1", on: mi300x, want: err},
	{name: "MOONCAKE_DISABLE_HIP_DMABUF", value: "1", on: amdPeer, want: ok},
	{name: "MOONCAKE_DISABLE_HIP_DMABUF", value: "0", on: mi300x, want: ok},

	{name: teFilters, value: "mlx5_0, mlx5_1", on: twoNodes, want: bad},
	{name: teFilters, value: "mlx5_0, mlx5_1", on: dgx, want: ok},
	{name: teFilters, value: "mlx5_0", on: dgx, want: bad},
	{name: "MC_TE_FILTERS_EXCLUDE", value: "mlx5_1", on: dgx, want: bad, env: beside(tent, "1")},
	{name: "MC_TE_FILTERS_EXCLUDE", value: "mlx5_1", on: twoNodes, want: ok, env: beside(tent, "1")},
	{name: "MC_TE_FILTERS_EXCLUDE", value: "mlx5_1", on: dgx, want: bad, fixed: true},
	{name: "MC_GID_INDEX", value: "3", on: shortTable, want: bad},
	{name: "MC_GID_INDEX", value: "3", on: twoNodes, want: ok},
	{name: "MC_IB_PORT", value: "2", on: dgx, want: bad, fixed: true},
	{name: "MC_IB_PORT", value: "2", on: twoPorts, want: ok},
	{name: "MC_PATH_ROUNDROBIN", value: "yes", on: dgx, want: bad, fixed: true},
	{name: "MC_PATH_ROUNDROBIN", value: "yes", on: offline, want: ok},
	{name: "MC_PATH_ROUNDROBIN", value: "1", on: twoNodes, want: ok},
	{name: destNIC, value: "0", on: dgx, want: bad, fixed: true},
	{name: destNIC, value: "0", on: bonded, want: ok},
	{name: destNIC, value: "1", on: dgx, want: ok},
	{name: hcaAffinity, value: "1", on: dgx, want: bad, fixed: true},
	{name: hcaAffinity, value: "1", on: dgx, want: ok, env: beside(nicAffinity, "mlx5_0=mlx5_0")},
	{name: hcaAffinity, value: "1", on: dgx, want: bad, env: beside(nicAffinity, "mlx5_0=mlx5_0", destNIC, "1"), fixed: true},
	{name: nicAffinity, value: "mlx5_0=mlx5_0,mlx5_1;mlx5_1=mlx5_1", on: twoNodes, want: bad, env: beside(hcaAffinity, "1")},
	{name: nicAffinity, value: "mlx5_0=mlx5_0,mlx5_1;mlx5_1=mlx5_1", on: dgx, want: ok, env: beside(hcaAffinity, "1")},
	{name: nicAffinity, value: "mlx5_0=mlx5_0", on: dgx, want: bad, set: hcaAffinity + "=1", fixed: true},
	{name: nicAffinity, value: "mlx5_0=mlx5_0;", on: dgx, want: ok, env: beside(hcaAffinity, "1")},
	{name: nicAffinity, value: "mlx5_0=mlx5_0;mlx5_1", on: dgx, want: bad, env: beside(hcaAffinity, "1"), fixed: true},
	{name: "MC_CUSTOM_TOPO_JSON", value: "/topo.json", on: dgx, want: unk},
	{name: "MC_CUSTOM_TOPO_JSON", value: "/topo.json", on: headless, want: ok},
	{name: "MC_MLX5_QP_LAG_PORT_BALANCE", value: "0", on: bonded, want: bad, set: "MC_MLX5_QP_LAG_PORT_BALANCE=1"},
	{name: "MC_MLX5_QP_LAG_PORT_BALANCE", value: "0", on: dgx, want: ok},
	{name: "MC_MLX5_QP_LAG_PORT_BALANCE", value: "1", on: bonded, want: ok},
	{name: "MC_EFA_NIC_SELECTION", value: "local", on: efaRefused, want: bad},
	{name: "MC_EFA_NIC_SELECTION", value: "local", on: p5, want: ok},

	{name: "PYTORCH_CUDA_ALLOC_CONF", value: "expandable_segments:True", on: peer, want: bad},
	{name: "PYTORCH_CUDA_ALLOC_CONF", value: "expandable_segments:True", on: dgx, want: ok},
	{name: "PYTORCH_CUDA_ALLOC_CONF", value: "max_split_size_mb:128,expandable_segments:True", on: dgx, want: bad, env: beside(peermem, "0"), fixed: true},
	{name: "PYTORCH_CUDA_ALLOC_CONF", value: "expandable_segments:False", on: peer, want: ok},
	{name: "PYTORCH_ALLOC_CONF", value: "expandable_segments:True", on: peer, want: bad},
	{name: "PYTORCH_ALLOC_CONF", value: "expandable_segments:True", on: refused, want: ok},
	{name: "PYTORCH_HIP_ALLOC_CONF", value: "expandable_segments:True", on: amdOnlyPeer, want: bad},
	{name: "PYTORCH_HIP_ALLOC_CONF", value: "expandable_segments:True", on: mi300x, want: ok},

	{name: "NVSHMEM_IB_DISABLE_DMABUF", value: "1", on: dgx, want: err},
	{name: "NVSHMEM_IB_DISABLE_DMABUF", value: "1", on: peer, want: ok},
	{name: "NVSHMEM_IB_DISABLE_DMABUF", value: "no", on: dgx, want: ok},
	{name: "NVSHMEM_DISABLE_DATA_DIRECT", value: "1", on: gb300, want: bad},
	{name: "NVSHMEM_DISABLE_DATA_DIRECT", value: "1", on: dgx, want: ok},
	{name: "NVSHMEM_IB_ENABLE_RELAXED_ORDERING", value: "0", on: rooted, want: bad},
	{name: "NVSHMEM_IB_ENABLE_RELAXED_ORDERING", value: "0", on: dgx, want: ok},
	{name: "NVSHMEM_DISABLE_CUDA_VMM", value: "1", on: t4, want: bad},
	{name: "NVSHMEM_DISABLE_CUDA_VMM", value: "1", on: dgx, want: ok},
	{name: ibgda, value: "1", on: twoNodes, want: err, fixed: true},
	{name: ibgda, value: "1", on: refused, want: err},
	{name: ibgda, value: "1", on: dgx, want: ok},
	{name: "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE", value: "gpumem", on: refused, want: err, set: "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE=hostmem"},
	{name: "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE", value: "gpumem", on: dgx, want: ok},

	{name: hcaPrefix, value: "mlx5", on: renamed, want: bad, set: hcaPrefix + "=ibp", fixed: true},
	{name: hcaPrefix, value: "mlx5", on: dgx, want: ok},
	{name: hcaPrefix, value: "ibp", on: renamed, want: ok},
	{name: nvshmemHCA, value: "mlx5_0:1,mlx5_1:1", on: dgx, want: bad, set: peMapping + "=1", fixed: true},
	{name: nvshmemHCA, value: "mlx5_0:1,mlx5_1:1", on: dgx, want: ok, env: beside(peMapping, "1")},
	{name: nvshmemHCA, value: "mlx5_0:1,mlx5_1:1", on: twoNodes, want: bad, env: beside(peMapping, "1")},
	{name: "NVSHMEM_HCA_PE_MAPPING", value: "mlx5_0:1:1,mlx5_1:1:1", on: twoNodes, want: bad, env: beside(peMapping, "1")},
	{name: "NVSHMEM_HCA_PE_MAPPING", value: "mlx5_0:1:1,mlx5_1:1:1", on: dgx, want: ok, env: beside(peMapping, "1")},
	{name: peMapping, value: "1", on: dgx, want: bad, fixed: true},
	{name: peMapping, value: "1", on: bonded, want: ok},
	{name: peMapping, value: "1", on: dgx, want: ok, env: beside(nvshmemHCA, "mlx5_0,mlx5_1")},
	{name: "NVSHMEM_IB_GID_INDEX", value: "3", on: shortTable, want: bad},
	{name: "NVSHMEM_IB_GID_INDEX", value: "3", on: twoNodes, want: ok},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "ibrc", on: p5, want: err, set: "NVSHMEM_REMOTE_TRANSPORT=libfabric", fixed: true},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "ibrc", on: dgx, want: ok},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "ibdevx", on: dgx, want: ok},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "libfabric", on: p5, want: ok},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "none", on: dgx, want: bad, fixed: true},
	{name: "NVSHMEM_REMOTE_TRANSPORT", value: "IBRC", on: dgx, want: bad, fixed: true},

	{name: "MSCCLPP_HCA_DEVICES", value: "mlx5_1,mlx5_0", on: dgx, want: bad},
	{name: "MSCCLPP_HCA_DEVICES", value: "mlx5_1,mlx5_0", on: crossed, want: ok},
	{name: "MSCCLPP_HCA_DEVICES", value: "mlx5_0", on: dgx, want: err, fixed: true},
	{name: "MSCCLPP_IB_GID_INDEX", value: "3", on: shortTable, want: bad},
	{name: "MSCCLPP_IB_GID_INDEX", value: "3", on: twoNodes, want: ok},
}

// More machines, for one variable each.

func onHaswell() Facts   { return with(rooted(), func(f *Facts) { f.CPU = haswell }) }
func inVM() Facts        { return with(dgx(), func(f *Facts) { f.Virtual = y }) }
func partitioned() Facts { return with(dgx(), func(f *Facts) { f.GPUs[0].MLOPart = y }) }
func shortTable() Facts {
	return with(twoNodes(), func(f *Facts) { f.NICs[0] = nic("bnxt_re0", "bnxt_en", GIDOther, GIDRoCEv2) })
}
func noRoute() Facts {
	return with(dgx(), func(f *Facts) { f.DMABuf = n; f.GPUs = append(f.GPUs, gpu("gpu2", AMD, PIX, "mlx5_0")) })
}
func newKernel() Facts { return with(mi300x(), func(f *Facts) { f.Config = ConfigNowhere }) }
func nearRefused() Facts {
	return with(rooted(), func(f *Facts) { f.GPUs[1].NearestAny = PIX })
}
func efaRefused() Facts  { return with(p5(), func(f *Facts) { f.GPUs[0].Nearest = SYS }) }
func loadedOnly() Facts  { return with(dgx(), func(f *Facts) { f.PeerModule = y }) }
func amdOnlyPeer() Facts { return with(amdPeer(), func(f *Facts) { f.DMABuf = n }) }
func twoPorts() Facts {
	return with(dgx(), func(f *Facts) {
		for i := range f.NICs {
			f.NICs[i].Ports = []Port{{Num: 1, RoCE: n}, {Num: 2, RoCE: n}}
		}
	})
}
func withRXE() Facts {
	return with(dgx(), func(f *Facts) {
		soft := nic("rxe0", "rdma_rxe")
		soft.Software = true
		f.NICs, f.Devices = append(f.NICs, soft), append(f.Devices, "rxe0")
	})
}
func omniPath() Facts {
	return of([]GPU{gpu("gpu0", NVIDIA, PHB, "hfi1_0")}, sapphire, nic("hfi1_0", "hfi1"))
}
func renamed() Facts {
	return of([]GPU{gpu("gpu0", NVIDIA, PIX, "ibp24s0")}, sapphire, nic("ibp24s0", mlx5), nic("ibp41s0", mlx5))
}
func crossed() Facts {
	return with(dgx(), func(f *Facts) { f.GPUs[0].NearestNICs, f.GPUs[1].NearestNICs = []string{"mlx5_1"}, []string{"mlx5_0"} })
}
