// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/gpurdma/gpurdma/failure"
)

// parse turns "host:port" into an address. Of several addresses of a host name it takes the first
// one of from's family. An empty host stands for all addresses of this machine. A zone comes out as
// the number of the interface.
func parse(ctx context.Context, op, addr string, from netip.Addr) (netip.AddrPort, error) {
	bad := func(err error) error {
		return &failure.Error{Op: op, Device: addr, Err: err, Remedy: "use host:port; [host]:port for IPv6"}
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, bad(err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return netip.AddrPort{}, bad(err)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)), nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		list, lerr := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if lerr != nil {
			return netip.AddrPort{}, bad(lerr)
		}
		ip = choose(list, from)
	}
	if ip, err = numbered(ip.Unmap()); err != nil {
		return netip.AddrPort{}, bad(err)
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// choose returns the first address of from's family, or the first one if there is none.
func choose(list []netip.Addr, from netip.Addr) netip.Addr {
	if from.IsValid() && !from.IsUnspecified() {
		for _, ip := range list {
			if ip.Unmap().Is4() == from.Is4() {
				return ip
			}
		}
	}
	return list[0]
}

// parseSource is parse of an address that may be without a port.
func parseSource(ctx context.Context, from string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(from); err == nil {
		ip, err = numbered(ip.Unmap())
		return netip.AddrPortFrom(ip, 0), err
	}
	return parse(ctx, opResolve, from, netip.Addr{})
}

// numbered turns the zone "eth0" into "2".
func numbered(ip netip.Addr) (netip.Addr, error) {
	zone := ip.Zone()
	if zone == "" {
		return ip, nil
	}
	if _, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return ip, nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return ip, err
	}
	return ip.WithZone(strconv.Itoa(i.Index)), nil
}
