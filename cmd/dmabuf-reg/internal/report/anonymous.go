// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/devices"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// anonymizer takes out of texts what tells one machine from another of its kind:
// what this machine is known by, and whatever looks like such a thing, of which a
// vendor's library, an error or a device's name may know more than we do.
type anonymizer struct {
	known *regexp.Regexp // nil if nothing is known
	plain []string       // texts that may have hexadecimal digits: versions
}

// removed stands where something was.
const removed = "-"

// shapes are UUIDs, of GPUs too, ROCm's of 16 digits, MAC addresses, GUIDs and IPv6
// addresses in full. PCI addresses are none of these.
var shapes = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`(?:(?:GPU|MIG)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`,
	`GPU-[0-9a-f]{8,}`,
	`(?:[0-9a-f]{2}:){5,}[0-9a-f]{2}`,
	`(?:[0-9a-f]{4}:){3,}[0-9a-f]{4}`,
}, "|") + `)\b`)

// address is a MAC address or a GUID, which udev makes names of: enx0a1b2c3d4e5f.
var (
	token   = regexp.MustCompile(`[0-9A-Za-z]+`)
	address = regexp.MustCompile(`[0-9a-f]{12,}`)
)

// anonymous is a device's name without the address in it.
func anonymous(name string) string { return address.ReplaceAllString(name, removed) }

// text is s without them.
func (a *anonymizer) text(s string) string {
	if a.known != nil {
		s = a.known.ReplaceAllLiteralString(s, removed)
	}
	if slices.Contains(a.plain, s) {
		return s
	}
	s = shapes.ReplaceAllLiteralString(s, removed)
	return token.ReplaceAllStringFunc(s, func(word string) string {
		if strings.HasPrefix(word, "0x") || strings.Trim(word, "0123456789") == "" { // a number
			return word
		}
		return anonymous(word)
	})
}

// names leaves out the names that have something of it.
func (a *anonymizer) names(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return a.text(name) != name })
}

// literal is a string in JSON, with the colon if it is a key.
var literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*":?`)

// document anonymizes every string of a JSON document but its keys.
func (a *anonymizer) document(data []byte) []byte {
	return literal.ReplaceAllFunc(data, func(quoted []byte) []byte {
		var s string
		if json.Unmarshal(quoted, &s) != nil { // a key
			return quoted
		}
		text := a.text(s)
		if text == s {
			return quoted
		}
		out, _ := json.Marshal(text)
		return out
	})
}

// newAnonymizer looks up the names of this machine. A name that cannot be read, or that
// the machine does not have, is in no text of the command either, or has one of the shapes.
func newAnonymizer(sys sysfs.FS, d *devices.Result, plain ...string) *anonymizer {
	var hosts, others []string
	if host, err := os.Hostname(); err == nil {
		first, _, _ := strings.Cut(host, ".")
		hosts = append(hosts, host, first)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		hosts = append(hosts, unix.ByteSliceToString(u.Domainname[:]))
	}
	others = append(others, networkNames()...)
	for _, n := range d.NICs {
		others = append(others, n.NodeGUID)
		for _, p := range n.Ports {
			for _, g := range p.GIDs {
				others = append(others, g.String())
			}
		}
		others = append(others, readAll(sys, path.Join("class/infiniband", n.Name), "sys_image_guid")...)
	}
	for _, g := range d.NVIDIA {
		others = append(others, g.UUID)
	}
	for _, a := range d.Allocators {
		if a.PCI != nil {
			others = append(others, readAll(sys, path.Join("bus/pci/devices", a.PCI.String()), "serial_number", "unique_id")...)
		}
	}
	others = append(others, readAll(sys, "class/dmi/id", "product_serial", "board_serial", "chassis_serial", "product_uuid")...)
	for _, file := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id"} {
		if text, err := os.ReadFile(file); err == nil {
			others = append(others, strings.TrimSpace(string(text)))
		}
	}
	a := &anonymizer{plain: plain}
	hosts = slices.DeleteFunc(hosts, func(h string) bool { return len(h) < 2 || h == "localhost" || h == "(none)" })
	others = slices.DeleteFunc(others, func(s string) bool { return !telling(s) })
	// A host's name is what it is: "debian" is not Debian.
	all := append(patterns("", hosts), patterns("(?i)", others)...)
	if len(all) > 0 {
		a.known = regexp.MustCompile(strings.Join(all, "|"))
	}
	return a
}

// telling: vendors fill fields that they have nothing for with "None" and the like.
func telling(s string) bool {
	return len(s) >= 6 && strings.ContainsFunc(s, unicode.IsDigit) && strings.Trim(s, "0:-") != ""
}

// patterns are regular expressions of whole words, the longest first.
func patterns(flags string, words []string) []string {
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	var out []string
	for _, w := range slices.Compact(words) {
		p := regexp.QuoteMeta(w)
		if token.MatchString(w[:1]) {
			p = `\b` + p
		}
		if token.MatchString(w[len(w)-1:]) {
			p += `\b`
		}
		out = append(out, "(?:"+flags+p+")")
	}
	return out
}

// networkNames are the addresses of this machine's network interfaces.
func networkNames() []string {
	var out []string
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range list {
		mac := i.HardwareAddr.String()
		out = append(out, mac, strings.ReplaceAll(mac, ":", ""))
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, addr := range addrs {
			if n, ok := addr.(*net.IPNet); ok && !n.IP.IsLoopback() {
				out = append(out, n.IP.String())
			}
		}
	}
	return out
}

// readAll reads those of a directory's files that can be read.
func readAll(sys sysfs.FS, dir string, files ...string) []string {
	var out []string
	for _, f := range files {
		if s, err := sys.ReadString(path.Join(dir, f)); err == nil {
			out = append(out, s)
		}
	}
	return out
}
