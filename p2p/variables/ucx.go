// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	ucxNumbers = "y, n or try"
	ucxTLS     = "UCX_TLS"
	rndvScheme = "UCX_RNDV_SCHEME"
)

var ucxEntries = []entry{
	{Variable: Variable{
		Name: "UCX_IB_GPU_DIRECT_RDMA", Library: "UCX", Since: "1.5", Default: "try",
		Effect: "n: UCX looks for no peer-memory client and no dma-bufs; y: an error if there is no route",
		Source: "ucx src/uct/ib/base/ib_md.c",
	}, set: func(j *judging, value string) verdict {
		switch {
		case strings.EqualFold(value, "try") || strings.EqualFold(value, "maybe"):
			return pass("UCX uses GPUDirect RDMA where it finds a route")
		case ofUCX(value) == placement.No:
			return j.costs("UCX copies")
		case ofUCX(value) == placement.AnswerUnknown:
			return misread("UCX", ucxNumbers)
		case j.DMABuf == placement.No && j.PeerMem == placement.No:
			return fail("UCX does not start on a NIC without a route for GPU memory, and this machine has neither dma-bufs nor a peer-memory client").away()
		case j.DMABuf != placement.Yes && j.PeerMem != placement.Yes:
			return open("UCX does not start on a NIC without a route for GPU memory; whether there is one is not known")
		}
		return pass("UCX uses GPUDirect RDMA, and ends in an error if it loses the route")
	}},
	{Variable: Variable{
		Name: rndvScheme, Library: "UCX", Since: "1.3", Default: "auto",
		Effect: "get_zcopy and put_zcopy: the NIC reads or writes GPU memory, whatever distance UCX estimates; *_ppln and am: through staging buffers",
		Source: "ucx src/ucp/core/ucp_context.c; openucx/ucx#11121, #11048",
	}, set: scheme, unset: func(j *judging) verdict { return scheme(j, "") }},
	{Variable: Variable{
		Name: "UCX_DISTANCE_BW", Library: "UCX", Since: "1.18", Default: "auto: phb up to 3500MBs, node 17000MBs, sys 220MBs; ucx.conf: sys 5100MBs on AMD, 16500MBs on Grace",
		Effect: "the bandwidth that UCX assumes between NUMA nodes, by which it chooses between GPUDirect RDMA and staging",
		Source: "ucx src/ucs/sys/topo/base/topo.c, ucs_topo_update_distance_sysfs(); src/ucs/config/global_opts.c; config/ucx.conf",
	}, set: func(j *judging, value string) verdict {
		far := placement.Any(j.GPUs, crossNUMA)
		switch {
		case far == placement.No:
			return pass("has no effect here: no GPU has its nearest direct NIC on another NUMA node")
		case strings.Contains(value, "sys:"):
			return pass("UCX assumes this bandwidth to the NICs on another NUMA node; ib_write_bw measures the real one")
		case far == placement.AnswerUnknown:
			return open("UCX estimates the bandwidth to NICs on another NUMA node; whether a GPU needs one is not known")
		}
		return warn("UCX estimates the bandwidth to the NICs on another NUMA node, which the nearest direct NIC of a GPU is on, and may stage through system memory").
			so("add sys: with the bandwidth that ib_write_bw measures", "")
	}},
	{Variable: Variable{
		Name: "UCX_IB_PCI_RELAXED_ORDERING", Library: "UCX", Since: "1.9", Default: "auto: on for some processors; NIXL: try",
		Effect: "n: strict ordering; y: relaxed ordering, and an error where it is missing; try: relaxed ordering where there is any",
		Source: "ucx src/uct/ib/base/ib_md.c; openucx/ucx#10955, #11532; nixl src/plugins/ucx/ucx_utils.cpp",
	}, set: func(j *judging, value string) verdict {
		switch {
		case strings.EqualFold(value, "auto"):
			switch v := ucxOrdering(j); {
			case v.result == ResultWarn:
				return v
			case j.across() == placement.AnswerUnknown || j.across() == placement.Yes && j.ordering().Needed == placement.AnswerUnknown:
				return open("UCX decides by the processor; whether this machine needs relaxed ordering between root ports is not known")
			}
			return pass("UCX decides by the processor")
		case ofUCX(value) == placement.No:
			return j.strict("UCX", "UCX_IB_PCI_RELAXED_ORDERING=y")
		case ofUCX(value) == placement.Yes || strings.EqualFold(value, "try") || strings.EqualFold(value, "maybe"):
			return j.relaxed("UCX")
		}
		return misread("UCX", "y, n, try or auto")
	}, unset: ucxOrdering},
	{Variable: Variable{
		Name: "UCX_IB_DIRECT_NIC", Library: "UCX", Since: "1.20", Default: "y",
		Effect: "n: UCX does not use the Data Direct function of a NIC",
		Source: "ucx src/uct/ib/base/ib_md.c; src/uct/ib/mlx5/dv/ib_mlx5dv_md.c",
	}, vendors: []Vendor{NVIDIA}, set: func(j *judging, value string) verdict {
		if ofUCX(value) == placement.AnswerUnknown {
			return misread("UCX", "y or n")
		}
		return j.dataDirect("UCX", ofUCX(value) == placement.Yes)
	}},
	{Variable: Variable{
		Name: "UCX_NET_DEVICES", Library: "UCX", Default: "all; NIXL: its own list of devices wins over the variable",
		Effect: "chooses RDMA devices and ports, and network interfaces; ^ leaves out; ranges as mlx5_[0-3]:1 from 1.22 on",
		Source: "ucx src/ucp/core/ucp_context.c, ucp_is_resource_in_device_list(); nixl src/plugins/ucx/ucx_utils.cpp",
	}, set: func(j *judging, value string) verdict {
		s := parseUCX(value)
		s.also, s.alsoUnread = j.NetDevices, j.NetDevices == nil
		return j.chosen("UCX", s, nil, byUCX)
	}},
	{Variable: Variable{
		Name: ucxTLS, Library: "UCX", Default: "all",
		Effect: "chooses transports: one of ib and one for the GPU's memory are needed; gga_mlx5 (from 1.17 on) fails on a LAG",
		Source: "ucx src/ucp/core/ucp_context.c, ucp_tl_aliases; openucx/ucx#11709, #11695; vllm-project/aibrix#1433",
	}, set: transports, unset: func(j *judging) verdict { return transports(j, "all") }},
	{Variable: Variable{
		Name: "UCX_IB_GID_INDEX", Library: "UCX", Default: "auto",
		Effect: "UCX uses this GID on every RoCE port",
		Source: "ucx src/uct/ib/base/ib_md.c",
	}, set: func(j *judging, value string) verdict {
		if strings.EqualFold(value, "auto") {
			return pass("UCX looks for a GID")
		}
		return j.gid("UCX", int(number(value, 0)), parseUCX(j.env["UCX_NET_DEVICES"]), byUCX)
	}},
	{Variable: Variable{
		Name: "UCX_MAX_HCA_PER_GPU", Library: "UCX", Since: "1.22", Default: "inf; NIXL from 1.2 on: auto",
		Effect: "auto or a number: GPU memory is registered with the NICs that are nearest by distance only",
		Source: "ucx src/ucp/core/ucp_context.c; openucx/ucx#11422; nixl src/plugins/ucx/ucx_utils.cpp",
	}, set: func(j *judging, value string) verdict {
		if strings.EqualFold(value, "inf") {
			return pass("UCX registers GPU memory with all NICs")
		}
		return j.nearest("UCX registers GPU memory with the nearest NICs only")
	}},
}

// byUCX reports a NIC that UCX drives: EFA, too, by SRD.
func byUCX(n NIC) bool { return !n.Software && n.Driver != cxi }

// crossNUMA reports a GPU with its nearest direct NIC on another NUMA node. Of a GPU that
// is attached by C2C it is not known what UCX makes of that.
func crossNUMA(g GPU) placement.Answer {
	switch {
	case g.Nearest == SYS && g.Coherent == placement.No:
		return placement.Yes
	case g.Nearest == SYS:
		return placement.AnswerUnknown
	case g.Nearest == DistanceUnknown:
		return placement.AnswerUnknown
	}
	return placement.No
}

// scheme judges UCX_RNDV_SCHEME; value "" is that it is not set.
func scheme(j *judging, value string) verdict {
	set := func(v verdict) verdict {
		return v.so("let the NIC read GPU memory at any distance; UCX_IB_GPU_DIRECT_RDMA=y makes UCX end in an error where it finds no route; "+
			"other ways are UCX_DISTANCE_BW with the measured bandwidth (from 1.18 on) and one NUMA node a socket (NPS1)", rndvScheme+"=get_zcopy")
	}
	far := placement.Any(j.GPUs, crossNUMA)
	gpus := names(j.GPUs, func(g GPU) bool { return crossNUMA(g) == placement.Yes }, func(g GPU) string { return g.Name })
	switch strings.ToLower(value) {
	case "get_zcopy", "put_zcopy":
		return pass("the NIC reads or writes GPU memory, whatever distance UCX estimates")
	case "", "auto":
		if _, ok := j.env["UCX_DISTANCE_BW"]; far == placement.Yes && !ok {
			return set(warn("UCX assumes a low bandwidth between NUMA nodes (220 MB/s, on AMD 5.1 GB/s), and stages through system memory for %s, whose nearest direct NIC is on another node", gpus))
		}
		if far == placement.AnswerUnknown {
			return open("UCX chooses by estimated distance; how far the nearest direct NICs are is not known")
		}
		return pass("UCX chooses by estimated distance, and the nearest direct NIC of each GPU is near")
	case "get_ppln", "put_ppln", "am", "rkey_ptr":
		if v := j.costs("UCX copies"); v.result != ResultWarn {
			return v
		}
		return warn("UCX copies large messages through staging buffers, though this machine has direct pairs").away()
	}
	return misread("UCX", "auto, get_zcopy, put_zcopy, get_ppln, put_ppln, rkey_ptr or am")
}

// assumedUCX is the oldest UCX that is assumed where the version is not known.
var assumedUCX = []int{1, 19}

func ucxOrdering(j *judging) verdict {
	o := j.ordering()
	by := placement.No
	if since := version(o.UCX); since != nil {
		by = j.atLeast("UCX", since...)
		if by == placement.AnswerUnknown && slices.Compare(since, assumedUCX) <= 0 {
			by = placement.Yes
		}
	}
	return j.lacks("UCX", o.UCX, "UCX_IB_PCI_RELAXED_ORDERING=y", by)
}

// aliases are the transports that a word of UCX_TLS stands for, of those that matter here.
var aliases = map[string][]string{
	"ib":   {"rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5", "dc_mlx5", "gga_mlx5", "srd", "rc_gda"},
	"ud_v": {"ud_verbs"}, "ud_x": {"ud_mlx5"}, "ud": {"ud_mlx5", "ud_verbs"},
	"rc_v": {"rc_verbs"}, "rc_x": {"rc_mlx5"}, "rc": {"rc_mlx5", "rc_verbs"},
	"dc": {"dc_mlx5"}, "dc_x": {"dc_mlx5"}, "gga": {"gga_mlx5"},
	"cuda": {"cuda_copy", "cuda_ipc", "gdr_copy"}, "rocm": {"rocm_copy", "rocm_ipc", "rocm_gdr"}, "ze": {"ze_copy", "ze_ipc", "ze_gdr"},
}

// copies are the transports by which UCX recognizes the memory of a vendor's GPUs.
var copies = map[Vendor]string{NVIDIA: "cuda_copy", AMD: "rocm_copy", Intel: "ze_copy"}

// transports judges UCX_TLS.
func transports(j *judging, value string) verdict {
	text, not := strings.CutPrefix(value, "^")
	var named []string
	all := false
	for _, word := range list(text) {
		word = strings.TrimPrefix(word, `\`)
		all = all || word == "all"
		named = append(named, word)
		named = append(named, aliases[word]...)
	}
	has := func(tl string) bool { return (all || slices.Contains(named, tl)) != not }
	carries := slices.ContainsFunc(aliases["ib"], func(tl string) bool { return tl != "gga_mlx5" && has(tl) })
	if slices.ContainsFunc(j.NICs, byUCX) && !carries {
		return warn("leaves UCX no RDMA transport: data goes through system memory and sockets").so("add ib, or take the variable away", "")
	}
	for _, g := range j.GPUs {
		if tl := copies[g.Vendor]; tl != "" && !has(tl) {
			return warn("leaves UCX no transport for the memory of %s GPUs, so that it takes their memory for system memory", g.Vendor).
				so("add "+strings.TrimSuffix(tl, "_copy")+", or take the variable away", "")
		}
	}
	lag := names(j.NICs, func(n NIC) bool { return n.Driver == mlx5 && n.Bond == placement.Yes }, func(n NIC) string { return n.Name })
	if lag != "" && has("gga_mlx5") && j.atLeast("UCX", 1, 17) != placement.No {
		without := ucxTLS + "=^gga_mlx5"
		switch {
		case not:
			without = extended(ucxTLS, value, ",gga_mlx5")
		case !all:
			without = ""
		}
		return warn("%s is a LAG: the transport gga_mlx5 (from 1.17 on) does not set lag_tx_port_affinity, and a registration with an exported key ends with ENODEV, in NIXL with a crash", lag).
			so("leave out gga_mlx5", without)
	}
	if slices.ContainsFunc(j.NICs, func(n NIC) bool { return n.Driver == mlx5 && n.Bond == placement.AnswerUnknown }) && has("gga_mlx5") {
		return open("leaves UCX the transport gga_mlx5, which fails on a LAG; whether a NIC is one is not known")
	}
	return pass("UCX has RDMA transports and those for the memory of the GPUs")
}

// nearest is the verdict on a value that keeps a library to the NICs that are nearest by
// distance.
func (j *judging) nearest(does string) verdict {
	worse := func(g GPU) bool { return g.Nearest.known() && g.NearestAny.known() && g.NearestAny < g.Nearest }
	if gpus := names(j.GPUs, worse, func(g GPU) string { return g.Name }); gpus != "" {
		return warn("%s, and those of %s are not direct, while a farther one is", does, gpus).away()
	}
	if placement.Any(j.GPUs, func(g GPU) placement.Answer {
		if g.Nearest == DistanceUnknown || g.NearestAny == DistanceUnknown {
			return placement.AnswerUnknown
		}
		return placement.No
	}) == placement.AnswerUnknown {
		return open("%s; whether those are direct is not known", does)
	}
	return pass("%s, which are direct or as good as any", does)
}
