// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// PKeys reads a port's P_Key table, by index. A place that is not in use is 0. The error is
// fs.ErrNotExist if the device has no such port, or the port no table.
func (c *Context) PKeys(port int) ([]ibdev.PKey, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	keys, err := ibdev.ReadPKeys(c.sys.Root(), c.name, port)
	if err != nil {
		e := failed("read the P_Key table", c.name, err)
		e.Detail = fmt.Sprintf("port %d", port)
		return nil, e
	}
	return keys, nil
}

// PKeyIndex returns the place of a partition in a port's P_Key table, for [ConnectAttr]
// and [QP.Activate]. It prefers an entry with full membership to a limited one, whichever
// of the two the key has. The error is ENOENT if the port is not in the partition, and
// EINVAL if the key names none.
func (c *Context) PKeyIndex(port int, key ibdev.PKey) (int, error) {
	if key.Partition() == 0 {
		e := failed("find the P_Key", c.name, unix.EINVAL)
		e.Detail = fmt.Sprintf("%#04x names no partition", uint16(key))
		return 0, e
	}
	keys, err := c.PKeys(port)
	if err != nil {
		return 0, err
	}
	limited := -1
	for i, k := range keys {
		switch {
		case k.Partition() != key.Partition():
		case k.Full():
			return i, nil
		case limited < 0:
			limited = i
		}
	}
	if limited >= 0 {
		return limited, nil
	}
	var has []string
	for i, k := range keys {
		if k.Partition() != 0 {
			has = append(has, fmt.Sprintf("%#04x at %d", uint16(k), i))
		}
	}
	if len(has) == 0 {
		has = append(has, "none")
	}
	e := failed("find the P_Key", c.name, unix.ENOENT)
	e.Detail = fmt.Sprintf("port %d is in no partition %#04x; it has %s", port, key.Partition(), strings.Join(has, ", "))
	e.Remedy = "ask the subnet manager's administrator to put the port into the partition, or use one that it is in"
	return 0, e
}

// ChooseGID reads a port's GID table, picks the entry that fits w best, and says why. If none fits,
// the error is [gid.ErrNone] and says what is wrong with each entry.
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
			e.Remedy = "give the port's network device an address that fits, or change the Wish"
		}
		return ibdev.GID{}, "", e
	}
	return g, why, nil
}

// QueryGID reads an entry of a port's GID table from sysfs.
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

// gidTable lists a port's GIDs in use. libibverbs gives them in one call. sysfs has a file for each
// place of the table, a thousand of them on rxe, and is read if libibverbs has no such call.
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
