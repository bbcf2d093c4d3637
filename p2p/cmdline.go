// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strconv"
	"strings"
)

// parameter is the value of a parameter on the kernel's command line. Of one that
// is there several times the kernel keeps the last, and it leaves what is behind
// "--" to init.
func (m *Machine) parameter(key string) string {
	value := ""
	for _, word := range m.bootWords() {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			value = v
		}
	}
	return value
}

// pciOption is the value of an option of pci=, whose options are separated by
// commas: the last one there is, in whichever pci= it stands.
func (m *Machine) pciOption(key string) string {
	value := ""
	for _, word := range m.bootWords() {
		options, ok := strings.CutPrefix(word, "pci=")
		for _, option := range strings.Split(options, ",") {
			if v, is := strings.CutPrefix(option, key+"="); ok && is {
				value = v
			}
		}
	}
	return value
}

func (m *Machine) bootWords() []string {
	words := strings.Fields(strings.ReplaceAll(m.read("proc/cmdline").text, `"`, ""))
	if end := slices.Index(words, "--"); end >= 0 {
		words = words[:end]
	}
	return words
}

// openedPorts are those that the kernel was told to open, in the words of its
// command line: a port can also stand there as a path, or by its IDs.
func (m *Machine) openedPorts() []string {
	return strings.FieldsFunc(m.pciOption("disable_acs_redir"), func(r rune) bool { return r == ';' })
}

// setPorts reports whether config_acs= may be about one of the ports. It is
// applied after disable_acs_redir=, and undoes it.
func (m *Machine) setPorts(ports []string) bool {
	for _, entry := range strings.Split(m.pciOption("config_acs"), ";") {
		_, port, ok := strings.Cut(entry, "@")
		if a, err := ParseAddr(port); ok && (err != nil || slices.Contains(ports, a.String())) {
			return true
		}
	}
	return false
}

// isPort reports whether an entry of such a list is one of the ports.
func isPort(entry string, ports []string) bool {
	a, err := ParseAddr(entry)
	return err == nil && slices.Contains(ports, a.String())
}

// forced is the parameter of a driver of Intel's with one more device: "56a0" that it
// takes, "!56a0" that it leaves alone. It keeps the others that are named on the
// command line. "*" and "!*" are all devices if they stand alone.
func (m *Machine) forced(key, id string) string {
	old := m.parameter(key)
	blocks := id[0] == '!'
	switch {
	case old == "" || old == "*" && blocks || old == "!*" && !blocks:
		return key + "=" + id
	case old == "*" || old == "!*":
		return key + "=" + old
	}
	// A driver leaves alone what is in the list both ways.
	list := slices.DeleteFunc(strings.Split(old, ","), func(entry string) bool {
		return sameID(entry, id) && strings.HasPrefix(entry, "!") != blocks
	})
	if !slices.ContainsFunc(list, func(entry string) bool { return sameID(entry, id) }) {
		list = append(list, id)
	}
	return key + "=" + strings.Join(list, ",")
}

// sameID reports two entries of one device.
func sameID(a, b string) bool {
	x, err1 := deviceID(a)
	y, err2 := deviceID(b)
	return err1 == nil && err2 == nil && x == y
}

func deviceID(entry string) (uint64, error) {
	entry = strings.TrimPrefix(strings.ToLower(entry), "!")
	return strconv.ParseUint(strings.TrimPrefix(entry, "0x"), 16, 16)
}
