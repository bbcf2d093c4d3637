// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// GID says which GIDs of a NIC's port connections may have.
type GID struct {
	Wish gid.Wish
	Text string
}

// Set implements pflag.Value. A later value keeps the wishes of an earlier one that it does
// not set.
func (f *GID) Set(s string) error {
	w := f.Wish
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		if err := addWish(&w, word); err != nil {
			return fmt.Errorf("%q %w: write an address or a network (10.0.0.1, 10.0.0.0/24), v1, v2, ipv4, ipv6, dev=eth0.5, vlan=5 or vlan=none, and commas between several", word, err)
		}
	}
	f.Wish, f.Text = w, s
	return nil
}

func addWish(w *gid.Wish, word string) error {
	switch word {
	case "v1":
		w.RoCE = 1
		return nil
	case "v2":
		w.RoCE = 2
		return nil
	case "ipv4":
		w.Family = gid.IPv4
		return nil
	case "ipv6":
		w.Family = gid.IPv6
		return nil
	case "vlan=none":
		w.VLAN = gid.Untagged
		return nil
	}
	if dev, ok := strings.CutPrefix(word, "dev="); ok && dev != "" {
		w.NetDev = dev
		return nil
	}
	if id, ok := strings.CutPrefix(word, "vlan="); ok {
		n, err := strconv.ParseUint(id, 10, 12)
		if err != nil || n == 0 || n == 1<<12-1 {
			return errors.New("is no VLAN's number, 1 to 4094")
		}
		w.VLAN = int(n)
		return nil
	}
	if addr, err := netip.ParseAddr(word); err == nil {
		addr = addr.Unmap().WithZone("")
		w.Subnet = netip.PrefixFrom(addr, addr.BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(word)
	if err != nil {
		return errors.New("is no GID, and no part of one")
	}
	w.Subnet = prefix.Masked()
	return nil
}

// Granted refuses what no port of the NIC that is up has, before the command waits for a peer.
func (f *GID) Granted(nic string, port int) error {
	if f.Wish == (gid.Wish{}) {
		return nil
	}
	ctx, err := ibvfd.Open(nic)
	if err != nil {
		return err
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	for p := 1; p <= attr.Ports; p++ {
		if port != 0 && p != port {
			continue
		}
		state, e := ctx.QueryPort(p)
		if e != nil {
			return e
		}
		if state.State != ibdev.PortActive {
			continue
		}
		if _, _, err = ctx.ChooseGID(p, f.Wish); !errors.Is(err, gid.ErrNone) {
			return err
		}
	}
	if err != nil {
		err = &failure.Error{
			Op: "choose a GID", Device: nic, Detail: "--gid " + f.Text, Err: err,
			Remedy: fmt.Sprintf("ask for one that is there: /sys/class/infiniband/%s/ports/*/gids has them", nic),
		}
	}
	return err
}

// String implements pflag.Value.
func (f *GID) String() string { return f.Text }

// Type implements pflag.Value.
func (f *GID) Type() string { return "WISH" }
