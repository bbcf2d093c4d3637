// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// ChooseGID picks a GID of a port from its table as it is now, and says why.
// The error is [ErrNoGID] with what is wrong with each entry.
func (c *Context) ChooseGID(port int, w gid.Wish) (ibdev.GID, string, error) {
	if err := c.enter(); err != nil {
		return ibdev.GID{}, "", err
	}
	defer c.leave()
	attr, err := c.queryPort(port)
	if err != nil {
		return ibdev.GID{}, "", err
	}
	var table []ibdev.GID
	if w.NetDev == "" && w.VLAN == 0 {
		table, err = c.gidTable(port)
	} else {
		table, err = ibdev.ReadGIDs(c.sys.Root(), c.name, port) // with network devices
	}
	if err == nil && w.VLAN != 0 {
		err = gid.AddVLANs(table)
	}
	if err != nil {
		return ibdev.GID{}, "", failed("read the GID table", c.name, err)
	}
	g, why, err := w.Choose(table, attr.LinkLayer)
	if err != nil {
		e := failed("choose a GID", c.name, err)
		e.Detail = fmt.Sprintf("port %d", port)
		if attr.LinkLayer == ibdev.LinkEthernet {
			e.Remedy = "give the port's network device an address that fits, or change what is wished"
		}
		return ibdev.GID{}, "", e
	}
	return g, why, nil
}

// QueryGID reads an entry of a port's GID table as it is now.
func (c *Context) QueryGID(port, index int) (ibdev.GID, error) {
	if err := c.enter(); err != nil {
		return ibdev.GID{}, err
	}
	defer c.leave()
	gid, err := ibdev.ReadGID(c.sys.Root(), c.name, port, index)
	if err != nil {
		e := failed("read the GID table", c.name, err)
		e.Detail = fmt.Sprintf("port %d, index %d", port, index)
		return ibdev.GID{}, e
	}
	return gid, nil
}

// gidTable lists a port's GIDs in use. One call of libibverbs' tells them;
// sysfs has a file for each of the table's places, a thousand of them on rxe.
func (c *Context) gidTable(port int) ([]ibdev.GID, error) {
	all, ports, err := c.v.GIDs()
	if err != nil {
		return ibdev.ReadGIDs(c.sys.Root(), c.name, port)
	}
	var list []ibdev.GID
	for i, g := range all {
		if ports[i] == port {
			list = append(list, g)
		}
	}
	return list, nil
}
