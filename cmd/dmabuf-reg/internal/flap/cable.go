// SPDX-License-Identifier: Apache-2.0

package flap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/netdev"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Cable is the link of a NIC, which can be cut and mended.
type Cable struct {
	NIC, NetDev string
	Cut, Mend   func() error
}

// Cables are the network devices of a connection's NICs. Each is switched off and on by netlink.
type Cables struct {
	c    *netdev.Client
	sys  sysfs.FS
	List []Cable
}

// Close closes the connection to the kernel. It mends no link.
func (n *Cables) Close() error { return n.c.Close() }

// FindCables finds the network device of each NIC, and refuses what must not be cut, or may not be,
// before anything is cut.
func FindCables(rails []link.RailState, server net.Addr) (_ *Cables, err error) {
	c, err := netdev.Dial()
	if err != nil {
		return nil, err
	}
	n := &Cables{c: c, sys: sysfs.New("")}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	taken := map[string]string{} // NIC by network device
	for _, r := range rails {
		if slices.ContainsFunc(n.List, func(x Cable) bool { return x.NIC == r.Path.NIC }) {
			continue // two rails of a NIC
		}
		dev, err := netdevOf(r)
		if err != nil {
			return nil, err
		}
		if other := taken[dev]; other != "" {
			return nil, uncut(r.Path.NIC, dev+" is the network device of "+other+", too", "name NICs with network devices of their own", unix.EINVAL)
		}
		taken[dev] = r.Path.NIC
		one, err := n.prepare(r.Path.NIC, dev)
		if err != nil {
			return nil, err
		}
		n.List = append(n.List, one)
	}
	return n, spareExchange(n.List, server, n.way, n.sys)
}

// uncut is the error of a link that cannot be cut.
func uncut(nic, detail, remedy string, err error) error {
	return &failure.Error{Op: "cut the link", Device: nic, Detail: detail + "; nothing was cut", Remedy: remedy, Err: err}
}

// netdevOf returns the network device whose GID a rail has.
func netdevOf(r link.RailState) (string, error) {
	if r.Path.Port == 0 {
		return "", uncut(r.Path.NIC, "its rail was not made", "see that its port is up, and reaches the server's NIC at the same place in --nic", errors.Join(unix.ENOTCONN, r.Err))
	}
	gids, err := ibdev.ReadGIDs("", r.Path.NIC, r.Path.Port)
	if err != nil {
		return "", err
	}
	for _, g := range gids {
		if g.Addr() == r.Path.GID.WithZone("") && g.NetDev != "" {
			return g.NetDev, nil
		}
	}
	return "", uncut(r.Path.NIC, fmt.Sprintf("GID %v is of no network device here, as on InfiniBand", r.Path.GID), "pull the cable, and see `connect --watch`; --flap cuts RoCE NICs", unix.EOPNOTSUPP)
}

// prepare asks the kernel whether this process may switch a network device.
func (n *Cables) prepare(nic, name string) (Cable, error) {
	d, err := n.c.Find(name)
	switch {
	case err != nil:
		return Cable{}, uncut(nic, "its network device "+name+" is not in this network namespace", "run it in the namespace that has it", err)
	case !d.Up:
		return Cable{}, uncut(nic, name+" is down", "ip link set "+name+" up", unix.ENETDOWN)
	}
	switch err := n.c.MaySet(d); {
	case errors.Is(err, unix.EPERM):
		return Cable{}, uncut(nic, "this process may not switch "+name+" off", "run it as root, or with CAP_NET_ADMIN, in the network namespace of "+name, err)
	case err != nil:
		return Cable{}, uncut(nic, "asked whether "+name+" can be switched", "see the kernel's log", err)
	}
	with := []netdev.Device{d} // and the VLANs on it, which go down and come up with the device
	list, err := uppers(n.sys, name)
	if err != nil {
		return Cable{}, uncut(nic, "which network devices lie on "+name+" is not known", "see that /sys is mounted, and is that of this network namespace", err)
	}
	for _, upper := range list {
		switch u, err := n.c.Find(upper); {
		case errors.Is(err, unix.ENODEV): // it is in another network namespace
		case err != nil:
			return Cable{}, uncut(nic, upper+", which lies on "+name+", cannot be looked at", "see that /sys is that of this network namespace", err)
		case u.Up:
			with = append(with, u)
		}
	}
	var kept []netdev.Kept
	return Cable{NIC: nic, NetDev: name,
		Cut: func() error {
			kept = nil
			for _, x := range with {
				k, err := n.c.Keep(x)
				if err != nil {
					return err
				}
				kept = append(kept, k)
			}
			return n.c.SetUp(d, false)
		},
		Mend: func() error {
			err := n.c.SetUp(d, true)
			for end := time.Now().Add(mendTime); err != nil && time.Now().Before(end); err = n.c.SetUp(d, true) {
				time.Sleep(mendPause)
			}
			if err == nil {
				for _, k := range kept {
					err = errors.Join(err, n.c.Restore(k))
				}
			}
			if err != nil {
				err = &failure.Error{Op: "put the link back", Device: nic, Remedy: "see `ip link show " + name + "`, `ip route` and `ip neighbour`, and put back what is missing", Err: err}
			}
			return err
		},
	}, nil
}

// Switching a network device on is tried again for mendTime.
const (
	mendTime  = 20 * time.Second
	mendPause = 200 * time.Millisecond
)

// way returns the network device through which packets to an address go.
func (n *Cables) way(to netip.Addr) (string, error) {
	index, err := n.c.Way(to)
	if err != nil {
		return "", err
	}
	dev, err := net.InterfaceByIndex(index)
	if err != nil {
		return "", err
	}
	return dev.Name, nil
}
