// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// selection is a value that chooses RDMA devices: some names, perhaps with ports, or all
// but those.
type selection struct {
	not   bool
	list  []string
	match func(entry, device string) bool // without the port

	also       []string // names of other devices that the value may have
	alsoUnread bool
}

// whole and prefixed are how libraries compare names.
func whole(entry, device string) bool    { return entry == device }
func prefixed(entry, device string) bool { return strings.HasPrefix(device, entry) }

// prefixedFold is of libfabric's verbs provider.
func prefixedFold(entry, device string) bool {
	return len(device) >= len(entry) && strings.EqualFold(device[:len(entry)], entry)
}

// parseNCCL reads NCCL_IB_HCA: "^" leaves out, "=" wants whole names, else an entry is the
// beginning of a name.
func parseNCCL(value string) selection {
	s := selection{match: prefixed}
	value, s.not = strings.CutPrefix(value, "^")
	if rest, ok := strings.CutPrefix(value, "="); ok {
		value, s.match = rest, whole
	}
	s.list = list(value)
	return s
}

// ranged is the syntax of UCX 1.22: mlx5_[0-3]:1.
var ranged = regexp.MustCompile(`^([^][]*)\[([0-9]{1,6})-([0-9]{1,6})\]([^][]*)$`)

// maxNames bounds the names that ranges stand for.
const maxNames = 1024

// parseUCX reads UCX_NET_DEVICES.
func parseUCX(value string) selection {
	s := selection{match: whole}
	value, s.not = strings.CutPrefix(value, "^")
	for _, entry := range list(value) {
		m := ranged.FindStringSubmatch(entry)
		if m == nil {
			s.list = append(s.list, entry)
			continue
		}
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[3])
		for n := from; n <= to && len(s.list) < maxNames; n++ {
			s.list = append(s.list, m[1]+strconv.Itoa(n)+m[4])
		}
	}
	if !s.not && len(s.list) > 0 && s.list[0] == "all" {
		s.list = nil
	}
	return s
}

// parseList reads a list of whole names.
func parseList(value string) selection { return selection{list: list(value), match: whole} }

// parseVerbs reads FI_VERBS_DEVICE_NAME.
func parseVerbs(value string) selection { return selection{list: list(value), match: prefixedFold} }

// takes reports a device that a selection leaves, on some port.
func (s selection) takes(device string) bool { return s.port(device, 0) }

// port reports a port of a device that a selection leaves; 0 is any port.
func (s selection) port(device string, port int) bool {
	if len(s.list) == 0 {
		return true
	}
	listed := slices.ContainsFunc(s.list, func(entry string) bool {
		name, rest, one := strings.Cut(entry, ":")
		number, _, _ := strings.Cut(rest, ":")
		if one && number != "" && (port != 0 || s.not) && number != strconv.Itoa(port) {
			return false
		}
		return s.match(name, device)
	})
	return listed != s.not
}

// uses reports a NIC of which a selection leaves a port.
func (s selection) uses(n NIC) bool {
	if len(n.Ports) == 0 {
		return s.takes(n.Name)
	}
	return slices.ContainsFunc(n.Ports, func(p Port) bool { return s.port(n.Name, p.Num) })
}

// absent are the entries that name no device.
func (s selection) absent(devices []string) []string {
	var out []string
	for _, entry := range s.list {
		name, _, _ := strings.Cut(entry, ":")
		if !slices.ContainsFunc(devices, func(d string) bool { return s.match(name, d) }) {
			out = append(out, entry)
		}
	}
	return out
}

// chosen is the verdict on a selection: the devices have to be there, and the nearest
// direct NIC of each GPU has to be among them. usable are the devices that the library can
// drive.
func (j *judging) chosen(library string, s selection, vendors []Vendor, usable func(NIC) bool) verdict {
	known := slices.Clone(j.Devices)
	for _, n := range j.NICs {
		known = append(known, n.Name)
	}
	if len(s.list) == 0 {
		return pass("%s uses all devices", library)
	}
	left := j.left(s, usable)
	// A device that is listed, and of which nothing was read, may be usable.
	unread := slices.ContainsFunc(j.Devices, func(d string) bool { return s.takes(d) && !j.read(d) })
	if len(left) == 0 && !unread && (j.Devices != nil || s.not) {
		return warn("leaves %s no RDMA device: this machine has %s", library, j.have(usable)).so("name devices of this machine, or take the variable away", "")
	}
	missing := s.absent(append(known, s.also...))
	if len(missing) > 0 && !s.not {
		if j.Devices == nil || s.alsoUnread {
			return open("names %s; which devices there are was not read", few(missing))
		}
		return warn("names %s, which this machine does not have; it has %s", few(missing), j.have(usable)).so("correct the names", "")
	}
	out := func(g GPU) bool {
		return g.of(vendors) && len(g.NearestNICs) > 0 && !slices.ContainsFunc(g.NearestNICs, func(d string) bool { return slices.Contains(left, d) })
	}
	if gpus := names(j.GPUs, out, func(g GPU) string { return g.Name }); gpus != "" {
		return warn("leaves out the nearest direct NIC of %s", gpus).so("add the nearest NIC of each GPU, or take the variable away", "")
	}
	far := func(g GPU) bool {
		return g.of(vendors) && (g.Nearest == DistanceUnknown || g.Nearest.known() && len(g.NearestNICs) == 0)
	}
	if gpus := names(j.GPUs, far, func(g GPU) string { return g.Name }); gpus != "" && len(left) < len(j.left(selection{}, usable)) {
		return open("leaves out devices; which is the nearest direct NIC of %s is not known", gpus)
	}
	return pass("%s uses %s", library, few(left))
}

// read reports a device of which more than the name was read.
func (j *judging) read(device string) bool {
	return slices.ContainsFunc(j.NICs, func(n NIC) bool { return n.Name == device })
}

func (j *judging) left(s selection, usable func(NIC) bool) []string {
	var out []string
	for _, n := range j.NICs {
		if usable(n) && s.uses(n) {
			out = append(out, n.Name)
		}
	}
	return out
}

func (j *judging) have(usable func(NIC) bool) string {
	var out []string
	for _, n := range j.NICs {
		if usable(n) {
			out = append(out, n.Name)
		}
	}
	if len(out) == 0 {
		return "none that it can use"
	}
	return few(out)
}

// few shortens a list of names for a message.
func few(list []string) string {
	return names(list, func(string) bool { return true }, func(s string) string {
		if plain(s) {
			return s
		}
		return shown(s)
	})
}

// gid is the verdict on an index into the GID tables of the ports that a selection
// leaves. Only active RoCE ports have a choice.
func (j *judging) gid(library string, index int, s selection, usable func(NIC) bool) verdict {
	unread := ""
	for _, n := range j.NICs {
		for _, p := range n.Ports {
			if !usable(n) || !s.port(n.Name, p.Num) {
				continue
			}
			where := n.Name + " port " + strconv.Itoa(p.Num)
			if wrong, known := p.at(index); !known {
				unread = where
			} else if wrong != "" {
				return warn("%s has %s at index %d: connections of %s by RoCE v2 fail", where, wrong, index, library).
					so("take the variable away, so that the library finds the GID, or set the index of a RoCE v2 GID that is routed", "")
			}
		}
	}
	if unread != "" {
		return open("the GID of %s at index %d was not read", unread, index)
	}
	return pass("each active RoCE port has a RoCE v2 GID at index %d, or there is no such port", index)
}

// at says what is wrong with a place of the GID table.
func (p Port) at(index int) (wrong string, known bool) {
	switch {
	case p.RoCE == placement.No:
		return "", true
	case p.RoCE != placement.Yes || p.GIDs == nil:
		return "", false
	}
	gid, ok := p.GIDs[index]
	switch {
	case !ok:
		return "no GID", true
	case gid == GIDUnread:
		return "", false
	case gid == GIDLinkLocal:
		return "a link-local GID", true
	case gid == GIDOther:
		return "a GID that is not of RoCE v2", true
	}
	return "", true
}
