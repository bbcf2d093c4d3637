// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// Entry is one entry of pci=config_acs=: flags, and the ports that have them.
type Entry struct {
	Flags Flags
	// Device is an address ("0008:02:00.0", "02:00.0"), an address and the devices
	// on the way below it ("0008:00:00.0/00.0/03.0"), or IDs ("pci:15b3:197c").
	Device string
}

// String writes the entry as the kernel reads it.
func (e Entry) String() string { return e.Flags.String() + "@" + e.Device }

// FormatConfigACS returns the value of pci=config_acs= with these entries.
func FormatConfigACS(entries []Entry) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = e.String()
	}
	return strings.Join(words, ";")
}

// ParseConfigACS reads the value of pci=config_acs=. The kernel stops at an entry that
// it cannot read: this entry and all behind it set no port. ParseConfigACS then returns
// the entries before it, and the error.
func ParseConfigACS(value string) ([]Entry, error) {
	var entries []Entry
	if value == "" {
		return nil, nil
	}
	if strings.Contains(value, `"`) {
		// next_arg (lib/cmdline.c) removes quotes around a whole value only, and
		// this value begins behind "pci=".
		return nil, fmt.Errorf("config_acs=%s: the quotes are for the boot loader; a kernel that gets them reads no entry", value)
	}
	for word := range strings.SplitSeq(value, ";") {
		flags, device, ok := strings.Cut(word, "@")
		if !ok {
			return entries, fmt.Errorf("config_acs=: entry %q has no \"@\" with a device behind it: the kernel ignores it and what follows", word)
		}
		f, err := ParseFlags(flags)
		if err != nil {
			return entries, fmt.Errorf("config_acs=: entry %q: %w: the kernel ignores it and what follows", word, err)
		}
		e := Entry{f, device}
		if _, err := e.names(Function{}); err != nil {
			return entries, fmt.Errorf("config_acs=: entry %q: %w: the kernel ignores it and what follows", word, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

var errDevice = errors.New("that is no device as the kernel writes it, such as 0008:02:00.0")

// names reports whether the entry's device is the port, by the rules of
// pci_dev_str_match. IDs of the board are not known here.
func (e Entry) names(port Function) (Tri, error) {
	if ids, ok := strings.CutPrefix(e.Device, "pci:"); ok {
		return namesIDs(strings.Split(ids, ":"), port)
	}
	first, below, _ := strings.Cut(e.Device, "/")
	root, err := parseAddr(first)
	if err != nil {
		return Unknown, err
	}
	way := append([]pciaddr.Addr{port.Addr}, port.Upstream...)
	if below == "" && !strings.HasSuffix(e.Device, "/") {
		return answer(root == way[0]), nil
	}
	steps := strings.Split(below, "/")
	slices.Reverse(steps)
	same := len(steps) < len(way)
	for i, step := range steps {
		device, function, err := parseStep(step)
		if err != nil {
			return Unknown, err
		}
		same = same && way[i].Device == device && way[i].Function == function
	}
	return answer(same && root == way[len(steps)]), nil
}

// parseAddr reads an address in which digits may be missing.
func parseAddr(s string) (a pciaddr.Addr, err error) {
	words := strings.Split(s, ":")
	if len(words) < 2 || len(words) > 3 {
		return a, errDevice
	}
	if len(words) == 3 {
		domain, err := strconv.ParseUint(words[0], 16, 32)
		if err != nil {
			return a, errDevice
		}
		a.Domain, words = uint32(domain), words[1:]
	}
	bus, err := strconv.ParseUint(words[0], 16, 8)
	if err != nil {
		return a, errDevice
	}
	a.Bus = uint8(bus)
	a.Device, a.Function, err = parseStep(words[1])
	return a, err
}

func parseStep(s string) (device, function uint8, err error) {
	before, after, ok := strings.Cut(s, ".")
	d, err1 := strconv.ParseUint(before, 16, 5)
	f, err2 := strconv.ParseUint(after, 16, 3)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, errDevice
	}
	return uint8(d), uint8(f), nil
}

// namesIDs compares vendor and device; 0 stands for any.
func namesIDs(ids []string, port Function) (Tri, error) {
	if len(ids) != 2 && len(ids) != 4 {
		return Unknown, errDevice
	}
	var n [4]uint64
	for i, id := range ids {
		var err error
		if n[i], err = strconv.ParseUint(id, 16, 16); err != nil {
			return Unknown, errDevice
		}
	}
	switch {
	case n[0] != 0 && uint16(n[0]) != port.Vendor, n[1] != 0 && uint16(n[1]) != port.Device:
		return No, nil
	case n[2] != 0 || n[3] != 0:
		return Unknown, nil
	}
	return Yes, nil
}

// Join returns one list of two, because the kernel uses only the last config_acs=: the
// entries of first, and then those of there for other addresses.
func Join(first, there []Entry) []Entry {
	out := slices.Clone(first)
	for _, e := range there {
		a, err := parseAddr(e.Device)
		if err == nil && slices.ContainsFunc(first, func(f Entry) bool { b, err := parseAddr(f.Device); return err == nil && a == b }) {
			continue
		}
		out = append(out, e)
	}
	return out
}

// whole has the first release of each series that reads a list: the fix is commit
// 9cf8a952d57b ("PCI/ACS: Fix 'pci=config_acs=' parameter") in 6.15 and its backports
// to 6.12.23, 6.13.11 and 6.14.2.
var whole = map[[2]int]int{{6, 12}: 23, {6, 13}: 11, {6, 14}: 2}

// ReadsLists reports whether the kernel of a release takes more than one entry of
// config_acs= and can turn bits off by it. The parameter came with 6.11 (commit
// 47c8846a49ba). Before its fix the kernel reads the first entry only, and turns off no
// bit that the firmware turned on. The answer for other releases is Unknown, because
// distributions bring both commits to older kernels (NVIDIA/NV-Kernels#20).
func ReadsLists(release string) Tri {
	number, _, _ := strings.Cut(release, "-")
	var v [3]int
	for i, word := range strings.SplitN(number, ".", 3) {
		end := strings.IndexFunc(word, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(word)
		}
		n, err := strconv.Atoi(word[:end])
		if err != nil {
			return Unknown
		}
		v[i] = n
	}
	series := [2]int{v[0], v[1]}
	patch, listed := whole[series]
	if v[0] > 6 || v[0] == 6 && v[1] >= 15 || listed && v[2] >= patch {
		return Yes
	}
	return Unknown
}
