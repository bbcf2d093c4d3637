// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const ncclHCA = "NCCL_IB_HCA"

var ncclDeviceEntries = []entry{
	{Variable: Variable{
		Name: "NCCL_IB_DISABLE", Library: "NCCL", Since: "2.3.5", Default: "0",
		Effect: "1: NCCL's own RDMA transport is off; a network plugin is not concerned",
		Source: "nccl src/transport/net_ib/init.cc",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		switch {
		case number(value, 0) == 0:
			return pass("NCCL's RDMA transport is on%s", asWord(value))
		case !slices.ContainsFunc(j.NICs, NIC.verbs):
			return pass("has no effect here: no NIC of this machine is one of NCCL's own RDMA transport")
		}
		return j.costs("NCCL uses sockets, and copies", nccls...)
	}},
	{Variable: Variable{
		Name: ncclHCA, Library: "NCCL", Since: "2.3.5", Default: "all active ports",
		Effect: "chooses devices and ports by the beginning of their names; ^ leaves out, = wants whole names",
		Source: "nccl src/transport/net_ib/init.cc; src/misc/utils.cc, parseStringList(), matchIfList()",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		return j.chosen("NCCL", parseNCCL(value), nccls, NIC.verbs)
	}},
	{Variable: Variable{
		Name: "NCCL_IB_GID_INDEX", Library: "NCCL", Since: "2.3.5", Default: "-1: NCCL looks for a RoCE v2 GID",
		Effect: "NCCL uses this GID on every RoCE port; Mooncake does, too, without MC_GID_INDEX",
		Source: "nccl src/transport/net_ib/connect.cc; Mooncake mooncake-transfer-engine/src/config.cpp; NVIDIA/nccl#426, #769",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		index := number(value, -1)
		if index < 0 {
			return pass("NCCL looks for a RoCE v2 GID")
		}
		return j.gid("NCCL", int(index), parseNCCL(j.env[ncclHCA]), NIC.verbs)
	}},
	{Variable: Variable{
		Name: "NCCL_NET", Library: "NCCL", Since: "2.10", Default: "the first network that initializes: a plugin, IB, Socket",
		Effect: "names the network; NCCL fails if it does not initialize",
		Source: "nccl src/init.cc; src/plugin/net.cc; aws-ofi-nccl README.md",
	}, vendors: nccls, set: net},
	{Variable: Variable{
		Name: "NCCL_NET_PLUGIN", Library: "NCCL", Default: "libnccl-net.so",
		Effect: "none: no network plugin, and so no EFA and no cxi",
		Source: "nccl src/plugin/net.cc; aws-ofi-nccl README.md",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		plugged := func(n NIC) bool { return n.Driver == efa || n.Driver == cxi }
		switch {
		case value != "none":
			return pass("NCCL loads the network plugin %s", shown(value))
		case !slices.ContainsFunc(j.NICs, plugged):
			return pass("NCCL uses its own transports, which drive the NICs of this machine")
		}
		return warn("NCCL does not reach %s without the network plugin", names(j.NICs, plugged, func(n NIC) string { return n.Name })).away()
	}},
}

func net(j *judging, value string) verdict {
	own := slices.ContainsFunc(j.NICs, NIC.verbs)
	switch strings.ToLower(value) {
	case "":
		return pass("NCCL chooses the network")
	case "socket":
		return j.costs("NCCL uses sockets, and copies", nccls...)
	case "ib":
		if !own {
			return fail("NCCL's own RDMA transport has no NIC on this machine: EFA and cxi need the network plugin").away()
		}
		return pass("NCCL uses its own RDMA transport")
	}
	return pass("NCCL uses the network plugin that calls itself %s", shown(value))
}

const forceRCCL = "RCCL_FORCE_ENABLE_DMABUF"

// rcclEntries are those of RCCL; the variables that it has from NCCL are above.
var rcclEntries = []entry{
	{Variable: Variable{
		Name: forceRCCL, Library: "RCCL", Since: "2.27.3 (ROCm 7.1)", Default: "0",
		Effect: "1: RCCL uses dma-bufs without a look at the text of the kernel's configuration",
		Source: "rccl src/misc/rocmwrap.cc; ROCm/rccl#1825; ROCm/rocm-systems#3258",
	}, vendors: []Vendor{AMD}, set: func(j *judging, value string) verdict {
		switch {
		case number(value, 0) == 0:
			return configText(j)
		case j.DMABuf == placement.No:
			return warn("RCCL uses dma-bufs without a look at the kernel, and no dma-buf route exists here: registrations fail").away()
		case j.DMABuf == placement.AnswerUnknown:
			return open("RCCL uses dma-bufs without a look at the kernel; whether there is a route is not known")
		}
		return pass("RCCL uses dma-bufs without a look at the text of the kernel's configuration")
	}, unset: configText},
}

// configText is the verdict on RCCL's search of the kernel's configuration.
func configText(j *judging) verdict {
	force := func(v verdict) verdict {
		return v.so("let RCCL use dma-bufs without the search", forceRCCL+"=1")
	}
	switch {
	case j.DMABuf == placement.No || j.peerMem() == placement.Yes || j.direct(AMD) == placement.No:
		return pass("RCCL looks at the text of the kernel's configuration, which decides nothing here")
	case j.DMABuf != placement.Yes || j.direct(AMD) != placement.Yes || j.Config == ConfigUnread:
		return open("RCCL looks at the text of the kernel's configuration; whether it needs dma-bufs here, and finds the options, is not known")
	case j.Config == ConfigNowhere:
		return force(warn("RCCL finds no file with CONFIG_DMABUF_MOVE_NOTIFY=y and CONFIG_PCI_P2PDMA=y and turns dma-bufs off, though this kernel has the route"))
	case j.Config == ConfigOther:
		return force(warn("RCCL before ROCm 7.1 looks at /boot/config-RELEASE only, which does not have the options here"))
	case j.ConfigGzip == placement.Yes && j.atLeast("RCCL", 2, 28) != placement.Yes:
		return force(warn("the RCCL of ROCm 7.2 reads /proc/config.gz without unpacking it, finds no option and turns dma-bufs off"))
	}
	return pass("RCCL finds the options that it looks for in /boot/config-RELEASE")
}
