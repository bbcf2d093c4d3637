// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// ncclDevices holds NCCL_IB_HCA and NCCL_IB_GID_INDEX against the devices that there
// are, and their tables of GIDs. open is what could not be read of them.
func ncclDevices(l *check.Look, env map[string]string) (wrong []string, open machine.Reading) {
	hcas := parseHCAs(env["NCCL_IB_HCA"])
	names, r := l.List("sys/class/infiniband") // all, of which some may not be looked at
	switch {
	case r.Gone() || r.Err == nil && len(names) == 0:
		return nil, machine.Reading{} // NIC-PRESENT tells of it
	case r.Err != nil && len(hcas.list) > 0:
		open = r
	case r.Err == nil && !slices.ContainsFunc(names, func(name string) bool { return hcas.takes(name, 0) }):
		wrong = append(wrong, fmt.Sprintf("NCCL_IB_HCA=%s, which leaves no RDMA device", env["NCCL_IB_HCA"]))
	}
	index, err := strconv.Atoi(env["NCCL_IB_GID_INDEX"])
	if err != nil || index < 0 {
		return wrong, open // NCCL chooses one itself
	}
	for _, n := range l.Subject.NICs {
		for _, p := range n.Ports {
			if n.Software || check.IsIWARP(check.Kind(l, n)) || !hcas.takes(n.Name, p.Num) {
				continue
			}
			in, r := inUse(l, n, p)
			if in {
				r = check.Table(l, n, p)
			}
			if r.Err != nil {
				open = r
			}
			if !in || r.Err != nil {
				continue
			}
			why, known := atIndex(p.GIDs, index)
			if !known {
				open = machine.Reading{Where: "/" + check.PortDir(n, p, "gid_attrs/types", strconv.Itoa(index)), Err: errNoType}
			}
			if why != "" {
				wrong = append(wrong, fmt.Sprintf("NCCL_IB_GID_INDEX=%d, where %s has %s", index, drivers.PortName(n, p), why))
			}
		}
	}
	return wrong, open
}

// errNoType is of a GID whose type cannot be read.
var errNoType = errors.New("the type of the GID cannot be read")

// inUse reports an Ethernet port that is ACTIVE, or why that is not known.
func inUse(l *check.Look, n drivers.NIC, p ibvfd.PortInfo) (bool, machine.Reading) {
	layer, state := l.Read(check.PortDir(n, p, "link_layer")), l.Read(check.PortDir(n, p, "state"))
	switch {
	case p.LinkLayer == ibvfd.LinkUnspecified && layer.Text != check.OwnNetwork:
		layer.Err = machine.FirstError(layer.Err, fmt.Errorf("%q is no link layer", layer.Text))
		return false, layer
	case p.LinkLayer != ibvfd.LinkEthernet:
		return false, machine.Reading{}
	case p.State < ibvfd.PortDown || p.State > ibvfd.PortActive:
		state.Err = machine.FirstError(state.Err, fmt.Errorf("%q is no state", state.Text))
		return false, state
	}
	return p.State == ibvfd.PortActive, machine.Reading{}
}

// atIndex is what is wrong with a place of a GID table; "" if nothing is known to be.
func atIndex(table []ibvfd.GID, index int) (wrong string, known bool) {
	i := slices.IndexFunc(table, func(g ibvfd.GID) bool { return g.Index == index })
	switch {
	case i < 0:
		return "no GID", true
	case table[i].Type == ibvfd.GIDUnknown:
		return "", false
	case table[i].Type != ibvfd.GIDRoCEv2:
		return "none of RoCE v2", true
	case table[i].Addr().IsLinkLocalUnicast():
		return "a link-local one", true
	}
	return "", true
}

// hcas is NCCL_IB_HCA: devices, perhaps with a port, by how their names begin. "^"
// leaves them out, "=" wants whole names.
type hcas struct {
	not, whole bool
	list       []string
}

func parseHCAs(value string) (h hcas) {
	value, h.not = strings.CutPrefix(value, "^")
	value, h.whole = strings.CutPrefix(value, "=")
	h.list = strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
	return h
}

// takes reports a NIC that NCCL uses, with a port of it; 0 is any.
func (h hcas) takes(nic string, port int) bool {
	if len(h.list) == 0 {
		return true
	}
	listed := slices.ContainsFunc(h.list, func(entry string) bool {
		name, number, one := strings.Cut(entry, ":")
		if one && (port != 0 || h.not) && number != strconv.Itoa(port) {
			return false
		}
		return nic == name || !h.whole && strings.HasPrefix(nic, name)
	})
	return listed != h.not
}
