// SPDX-License-Identifier: Apache-2.0

package variables

import "slices"

var mscclppEntries = []entry{
	{Variable: Variable{
		Name: "MSCCLPP_HCA_DEVICES", Library: "MSCCL++", Default: "found by libibverbs",
		Effect: "the first device is for the first GPU, the second for the second, and so on",
		Source: "mscclpp include/mscclpp/env.hpp; src/core/ib.cc",
	}, vendors: nccls, set: devicePerGPU},
	{Variable: Variable{
		Name: "MSCCLPP_IB_GID_INDEX", Library: "MSCCL++", Default: "0",
		Effect: "MSCCL++ uses this GID on every RoCE port",
		Source: "mscclpp include/mscclpp/env.hpp",
	}, vendors: nccls, set: func(j *judging, value string) verdict {
		return j.gid("MSCCL++", int(number(value, 0)), parseList(j.env["MSCCLPP_HCA_DEVICES"]), NIC.verbs)
	}, unset: func(j *judging) verdict {
		if !j.uses("MSCCLPP_") {
			return verdict{}
		}
		v := j.gid("MSCCL++, whose default is 0,", 0, parseList(j.env["MSCCLPP_HCA_DEVICES"]), NIC.verbs)
		return v.so("set the index of a RoCE v2 GID that is routed", "")
	}},
}

// devicePerGPU judges MSCCLPP_HCA_DEVICES.
func devicePerGPU(j *judging, value string) verdict {
	devices := list(value)
	var gpus []GPU
	for _, g := range j.GPUs {
		if g.of(nccls) {
			gpus = append(gpus, g)
		}
	}
	if len(devices) == 0 {
		return pass("MSCCL++ finds the devices itself")
	}
	if len(devices) < len(gpus) {
		return fail("names fewer devices (%d) than there are GPUs: MSCCL++ ends in an error for %s", len(devices), gpus[len(devices)].Name).
			so("name a device for each GPU, or take the variable away", "")
	}
	s := selection{list: devices, match: whole}
	if missing := s.absent(append(j.left(selection{}, NIC.verbs), j.Devices...)); len(missing) > 0 {
		return j.chosen("MSCCL++", s, nccls, NIC.verbs)
	}
	unread := ""
	for i, g := range gpus {
		switch {
		case len(g.NearestNICs) > 0 && !slices.Contains(g.NearestNICs, devices[i]):
			return warn("gives %s the device %s, and the nearest direct one is %s", g.Name, devices[i], few(g.NearestNICs)).
				so("name the nearest NIC of each GPU in the order of the GPUs, or take the variable away", "")
		case g.Nearest != NoNIC && len(g.NearestNICs) == 0:
			unread = g.Name
		}
	}
	if unread != "" {
		return open("gives each GPU a device; which is the nearest direct NIC of %s is not known", unread)
	}
	return pass("gives each GPU a device at the nearest distance")
}
