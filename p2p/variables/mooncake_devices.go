// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

const (
	teFilters   = "MC_TE_FILTERS"
	destNIC     = "MC_ENABLE_DEST_DEVICE_AFFINITY"
	hcaAffinity = "MC_ENABLE_HCA_PEER_AFFINITY"
	nicAffinity = "MC_NIC_PEER_AFFINITY"
)

// mooncakeDeviceEntries are those that choose Mooncake's NICs and their settings.
var mooncakeDeviceEntries = []entry{
	{Variable: Variable{
		Name: teFilters, Library: "Mooncake", Since: "0.3.12", Default: "all devices",
		Effect: "the RDMA devices that Mooncake uses, by whole names",
		Source: "Mooncake mooncake-transfer-engine/src/topology.cpp, getIbvDeviceWhitelist()",
	}, set: func(j *judging, value string) verdict {
		return j.chosen("Mooncake", parseList(value), nil, byMooncake)
	}},
	{Variable: Variable{
		Name: "MC_TE_FILTERS_EXCLUDE", Library: "Mooncake", Since: "0.3.12", Default: "none",
		Effect: "RDMA devices that TENT leaves out; without effect beside MC_TE_FILTERS and without TENT",
		Source: "Mooncake mooncake-transfer-engine/tent/src/common/config.cpp; kvcache-ai/Mooncake#2760",
	}, set: func(j *judging, value string) verdict {
		s := parseList(value)
		s.not = true
		switch {
		case j.env[teFilters] != "":
			return warn("has no effect beside %s", teFilters).away()
		case !j.isSet(tent) && !j.isSet(tentOld):
			return warn("has no effect without TENT (%s)", tent).so("use "+teFilters+" in its place", "")
		}
		return j.chosen("Mooncake", s, nil, byMooncake)
	}},
	{Variable: Variable{
		Name: "MC_GID_INDEX", Library: "Mooncake", Since: "0.2.0", Default: "NCCL_IB_GID_INDEX; without it Mooncake looks for a RoCE v2 GID",
		Effect: "Mooncake uses this GID on every RoCE port",
		Source: mcConfig + "; " + mcContext + "; kvcache-ai/Mooncake#204",
	}, set: func(j *judging, value string) verdict {
		index := number(value, 0)
		if index < 0 || index > 255 {
			return misread("Mooncake", "0 to 255")
		}
		return j.gid("Mooncake", int(index), parseList(j.env[teFilters]), byMooncake)
	}},
	{Variable: Variable{
		Name: "MC_IB_PORT", Library: "Mooncake", Since: "0.2.0", Default: "1",
		Effect: "the port that Mooncake uses of every device",
		Source: mcConfig,
	}, set: func(j *judging, value string) verdict {
		port := int(number(value, 1))
		lacks := func(n NIC) bool {
			return byMooncake(n) && len(n.Ports) > 0 && !slices.ContainsFunc(n.Ports, func(p Port) bool { return p.Num == port })
		}
		if without := names(j.NICs, lacks, func(n NIC) string { return n.Name }); without != "" {
			return warn("%s has no port %d: Mooncake does not use it", without, port).away()
		}
		return pass("each device has the port")
	}},
	{Variable: Variable{
		Name: "MC_PATH_ROUNDROBIN", Library: "Mooncake", Since: "0.3.7.post1", Default: "0",
		Effect: "1 or true: each thread uses the NICs near its memory in turn, else by chance; farther NICs only after an error",
		Source: "Mooncake mooncake-transfer-engine/src/topology.cpp, Topology::selectDevice()",
	}, set: func(j *judging, value string) verdict {
		if value == "1" || strings.EqualFold(value, "true") {
			return pass("Mooncake uses the near NICs in turn; the choice of NICs stays as it is")
		}
		if off(value) || value == "0" {
			return pass("Mooncake uses the near NICs by chance")
		}
		return misread("Mooncake", "1 or true")
	}},
	{Variable: Variable{
		Name: destNIC, Library: "Mooncake", Since: "0.3.5", Default: "not set",
		Effect: "set to any text, 0 too: the peer's NIC with the name of the own one is preferred, near to the peer's memory or not",
		Source: mcConfig + "; Mooncake mooncake-transfer-engine/src/topology.cpp, Topology::selectDevice()",
	}, set: func(j *judging, value string) verdict {
		switch {
		case len(j.left(selection{}, byMooncake)) < 2:
			return pass("has no effect here: this machine has one NIC")
		case off(value):
			return warn("Mooncake prefers the peer's NIC with the name of its own, whatever the value is").away()
		case placement.Any(j.GPUs, crossNUMA) == placement.No:
			return pass("Mooncake prefers the peer's NIC with the name of its own, which is right where peers are wired alike")
		}
		return open("Mooncake prefers the peer's NIC with the name of its own; whether that is near to the peer's memory is the peer's matter")
	}},
	{Variable: Variable{
		Name: hcaAffinity, Library: "Mooncake", Since: "0.3.12", Default: "false",
		Effect: "1: the peer's NICs are chosen by MC_NIC_PEER_AFFINITY",
		Source: mcConfig + "; kvcache-ai/Mooncake#2616",
	}, set: func(j *judging, value string) verdict {
		switch a := yes(value, []string{"1", "true"}, []string{"0", "false"}); {
		case a == placement.AnswerUnknown:
			return misread("Mooncake", "1, true, 0 or false")
		case a == placement.No:
			return pass("Mooncake chooses the peer's NICs itself")
		case j.isSet(destNIC):
			return warn("Mooncake ignores it and %s, which exclude each other", destNIC).so("take one of the two away", "")
		case j.env[nicAffinity] == "":
			return warn("Mooncake finds no mapping: %s is not set", nicAffinity).so("add the mapping, or take the variable away", "")
		}
		return pass("Mooncake chooses the peer's NICs by %s", nicAffinity)
	}},
	{Variable: Variable{
		Name: nicAffinity, Library: "Mooncake", Since: "0.3.12", Default: "none",
		Effect: "for each own NIC the peer's NICs: mlx5_0=mlx5_0,mlx5_1;mlx5_1=mlx5_1",
		Source: mcConfig + ", parseNicPeerAffinity()",
	}, set: affinity},
	{Variable: Variable{
		Name: "MC_CUSTOM_TOPO_JSON", Library: "Mooncake", Since: "0.3.0", Default: "none",
		Effect: "a file with the NICs of each GPU takes the place of Mooncake's own choice",
		Source: mcImpl,
	}, set: func(*judging, string) verdict {
		return open("Mooncake takes the NICs of each GPU from the file, which was not read")
	}},
	{Variable: Variable{
		Name: "MC_MLX5_QP_LAG_PORT_BALANCE", Library: "Mooncake", Since: "0.3.11.post1", Default: "0",
		Effect: "1: the QPs of a LAG are spread over its ports, in a build with mlx5dv",
		Source: mcConfig + "; Mooncake docs/source/design/transfer-engine/index.md; NVIDIA/nccl#2136",
	}, driver: mlx5, set: func(j *judging, value string) verdict {
		a := yes(strings.TrimSpace(value), []string{"1", "true"}, []string{"0", "false"})
		switch {
		case a == placement.AnswerUnknown:
			return misread("Mooncake", "1, true, 0 or false")
		case a == placement.Yes:
			return pass("Mooncake spreads the QPs of a LAG over its ports")
		}
		return lagPorts(j)
	}, unset: func(j *judging) verdict {
		if !j.uses("MC_", peermem) {
			return verdict{}
		}
		return lagPorts(j)
	}},
	{Variable: Variable{
		Name: "MC_EFA_NIC_SELECTION", Library: "Mooncake", Since: "after 0.3.12.post1", Default: "all",
		Effect: "local: GPU memory is registered with the EFA devices near the GPU only",
		Source: mcConfig + "; kvcache-ai/Mooncake#3219",
	}, driver: efa, set: func(j *judging, value string) verdict {
		switch strings.ToLower(value) {
		case "all":
			return pass("Mooncake registers GPU memory with all EFA devices")
		case "local":
			return j.nearest("Mooncake registers GPU memory with the nearest EFA devices only")
		}
		return misread("Mooncake", "all or local")
	}},
}

// byMooncake reports a NIC that Mooncake drives, EFA by libfabric.
func byMooncake(n NIC) bool { return !n.Software && n.Driver != cxi }

// lagPorts is the verdict on QPs that are not spread over the ports of a LAG.
func lagPorts(j *judging) verdict {
	switch placement.Any(j.NICs, func(n NIC) placement.Answer { return n.Bond }) {
	case placement.No:
		return pass("has no effect here: no NIC is a LAG")
	case placement.AnswerUnknown:
		return open("Mooncake does not spread QPs over the ports of a LAG; whether a NIC is one is not known")
	}
	lag := names(j.NICs, func(n NIC) bool { return n.Bond == placement.Yes }, func(n NIC) string { return n.Name })
	return warn("%s is a LAG: few QPs can all use one of its ports", lag).so("spread the QPs over the ports", "MC_MLX5_QP_LAG_PORT_BALANCE=1")
}

// affinity judges MC_NIC_PEER_AFFINITY.
func affinity(j *judging, value string) verdict {
	var own []string
	for _, rule := range strings.Split(value, ";") {
		local, peers, ok := strings.Cut(rule, "=")
		if local = strings.TrimSpace(local); ok && local != "" && len(list(peers)) > 0 {
			own = append(own, local)
		} else if strings.TrimSpace(rule) != "" {
			return warn("Mooncake ignores the rule %s: it takes OWN=PEER,PEER", shown(rule)).so("correct the rule", "")
		}
	}
	known := slices.Clone(j.Devices)
	for _, n := range j.NICs {
		known = append(known, n.Name)
	}
	missing := slices.DeleteFunc(own, func(name string) bool { return slices.Contains(known, name) })
	switch {
	case !j.isSet(hcaAffinity) || off(j.env[hcaAffinity]):
		return warn("has no effect without %s=1", hcaAffinity).so("turn it on, or take the mapping away", hcaAffinity+"=1")
	case len(missing) > 0 && j.Devices == nil:
		return open("names %s; which RDMA devices there are was not read", few(missing))
	case len(missing) > 0:
		return warn("names %s, which this machine does not have; it has %s", few(missing), j.have(byMooncake)).so("correct the names", "")
	}
	return pass("Mooncake chooses the peer's NICs by the mapping")
}
