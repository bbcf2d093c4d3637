// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// Parameter returns the value of a parameter on the kernel's command line; "" if the
// parameter is not there, or the command line cannot be read. Of several values it returns the last
// one, as the kernel does. The words behind "--" are for init, and do not count.
func (m *Machine) Parameter(key string) string {
	value := ""
	for _, word := range m.BootWords() {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			value = v
		}
	}
	return value
}

// PciOption returns the value of an option of pci=, whose options are separated by commas.
// If several pci= have the option, it returns the last value; "" if none has it.
func (m *Machine) PciOption(key string) string {
	value := ""
	for _, word := range m.BootWords() {
		options, ok := strings.CutPrefix(word, "pci=")
		for _, option := range strings.Split(options, ",") {
			if v, is := strings.CutPrefix(option, key+"="); ok && is {
				value = v
			}
		}
	}
	return value
}

// BootWords returns the words of the kernel's command line, up to "--", without double quotes.
// It returns none if the command line cannot be read.
func (m *Machine) BootWords() []string {
	words := strings.Fields(strings.ReplaceAll(m.Read("proc/cmdline").Text, `"`, ""))
	if end := slices.Index(words, "--"); end >= 0 {
		words = words[:end]
	}
	return words
}

// OpenedPorts lists the ports of pci=disable_acs_redir= on the command line, as they are
// written there: as an address, as a path, or by IDs.
func (m *Machine) OpenedPorts() []string {
	return strings.FieldsFunc(m.PciOption("disable_acs_redir"), func(r rune) bool { return r == ';' })
}

// SetPorts reports whether an entry of pci=config_acs= may name one of the ports. The
// kernel applies config_acs= after disable_acs_redir=, and so overrides it.
func (m *Machine) SetPorts(ports []string) bool {
	for _, entry := range strings.Split(m.PciOption("config_acs"), ";") {
		_, port, ok := strings.Cut(entry, "@")
		if a, err := pciaddr.Parse(port); ok && (err != nil || slices.Contains(ports, a.String())) {
			return true
		}
	}
	return false
}

// IsPort reports whether an entry of pci=disable_acs_redir= is the address of one of the ports.
func IsPort(entry string, ports []string) bool {
	a, err := pciaddr.Parse(entry)
	return err == nil && slices.Contains(ports, a.String())
}

// Forced returns a parameter of one of Intel's drivers, such as xe.force_probe, with one
// more device: "56a0" for a device that the driver must take, "!56a0" for one that it must
// leave alone. id must not be empty. It keeps the devices on the present command line. "*" and
// "!*" alone mean all devices.
func (m *Machine) Forced(key, id string) string {
	old := m.Parameter(key)
	blocks := id[0] == '!'
	switch {
	case old == "" || old == "*" && blocks || old == "!*" && !blocks:
		return key + "=" + id
	case old == "*" || old == "!*":
		return key + "=" + old
	}
	// A driver leaves a device alone if the list has it in both forms.
	list := slices.DeleteFunc(strings.Split(old, ","), func(entry string) bool {
		return sameID(entry, id) && strings.HasPrefix(entry, "!") != blocks
	})
	if !slices.ContainsFunc(list, func(entry string) bool { return sameID(entry, id) }) {
		list = append(list, id)
	}
	return key + "=" + strings.Join(list, ",")
}

// sameID reports whether two entries name the same device.
func sameID(a, b string) bool {
	x, err1 := deviceID(a)
	y, err2 := deviceID(b)
	return err1 == nil && err2 == nil && x == y
}

func deviceID(entry string) (uint64, error) {
	entry = strings.TrimPrefix(strings.ToLower(entry), "!")
	return strconv.ParseUint(strings.TrimPrefix(entry, "0x"), 16, 16)
}
