// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/testbed/machine"
)

// network brings up the interfaces and puts the RDMA devices on them.
func network(ifs []machine.Interface, rdma []machine.RDMA) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("interface lo up: %w", err)
	}
	for _, i := range ifs {
		if err := addInterface(i); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	for _, i := range ifs {
		if i.Kind == "" {
			if err := waitCarrier(i.Name); err != nil {
				return err
			}
		}
	}
	for _, r := range rdma {
		if err := netlink.RdmaLinkAdd(r.Name, r.Kind, r.Netdev); err != nil {
			return fmt.Errorf("adding RDMA device %s of type %s on %s: %w", r.Name, r.Kind, r.Netdev, err)
		}
	}
	return nil
}

func addInterface(i machine.Interface) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = i.Name
	switch i.Kind {
	case "dummy":
		if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("creating: %w", err)
		}
	case "veth":
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: i.Peer}); err != nil {
			return fmt.Errorf("creating: %w", err)
		}
	default:
		if err := renameByMAC(i.MAC, i.Name); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(i.Name)
	if err != nil {
		return err
	}
	if i.MTU != 0 {
		if err := netlink.LinkSetMTU(link, i.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", i.MTU, err)
		}
	}
	for _, a := range i.Addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return nil
}

// renameByMAC gives a network card its name from the machine's description.
// The driver may still be probing the card.
func renameByMAC(mac, name string) error {
	want, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Attrs().HardwareAddr.String() == want.String() {
				if l.Attrs().Name == name {
					return nil
				}
				return netlink.LinkSetName(l, name)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no network card with address %s: is its driver's module in the machine's list?", mac)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// waitCarrier waits until a network card has a link, which takes an emulated
// e1000e two seconds: an RDMA device on it has no active port before.
func waitCarrier(name string) error {
	deadline := time.Now().Add(15 * time.Second)
	for {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if link.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("interface %s: no carrier: is its QEMU device connected to a netdev?", name)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
