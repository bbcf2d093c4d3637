// SPDX-License-Identifier: Apache-2.0

package pciaddr

import (
	"fmt"
	"strconv"
	"strings"
)

// Addr is a PCI function's address.
type Addr struct {
	Domain   uint32 // 16 bits, or more behind Intel VMD
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// Parse reads an address such as "0000:03:00.0". Without a domain, as in
// "03:00.0", the domain is 0.
func Parse(s string) (Addr, error) {
	var a Addr
	bad := func() (Addr, error) {
		return Addr{}, fmt.Errorf("%q is not a PCI address such as 0000:03:00.0", s)
	}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return bad()
	}
	if len(parts) == 3 {
		d, err := strconv.ParseUint(parts[0], 16, 32)
		if err != nil || len(parts[0]) < 4 {
			return bad()
		}
		a.Domain = uint32(d)
		parts = parts[1:]
	}
	device, function, ok := strings.Cut(parts[1], ".")
	bus, err := strconv.ParseUint(parts[0], 16, 8)
	if !ok || err != nil || len(parts[0]) != 2 || len(device) != 2 || len(function) != 1 {
		return bad()
	}
	d, err1 := strconv.ParseUint(device, 16, 5)
	f, err2 := strconv.ParseUint(function, 16, 3)
	if err1 != nil || err2 != nil {
		return bad()
	}
	a.Bus, a.Device, a.Function = uint8(bus), uint8(d), uint8(f)
	return a, nil
}

// String writes the address as sysfs does: "0000:03:00.0".
func (a Addr) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// MarshalText makes an Addr a string in JSON.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an address as Parse does.
func (a *Addr) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}
