// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
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

// forced is the parameter of a driver of Intel's with one more device: it keeps
// those that are named on the command line. "*" is all devices if it stands alone.
func (m *Machine) forced(key, id string) string {
	old := m.parameter(key)
	switch {
	case old == "" || old != id && strings.Contains(old, "*") && id[0] == '!':
		return key + "=" + id
	case strings.Contains(old, "*") || slices.Contains(strings.Split(old, ","), id):
		return key + "=" + old
	}
	return key + "=" + old + "," + id
}
