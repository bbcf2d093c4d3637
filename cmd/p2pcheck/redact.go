// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check/gpucheck"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/variables"
)

// redactor replaces values that identify the machine. It replaces equal values by equal ones, so that files
// that refer to each other still do.
type redactor struct {
	gids  map[string]string
	cards map[string]string // values of vital product data
	names serials
	log   []string // lines of the kernel's log that are kept
}

// serials are the numbers in the names of devices that are named after a MAC or
// a GUID: enxa088c2000001, rocexa088c20300000001.
type serials map[string]string

var (
	// numbers match hexadecimal numbers at least as long as a MAC.
	numbers = regexp.MustCompile(`[0-9A-Fa-f]{12,}`)
	// named match words with a character that no hexadecimal number has.
	named = regexp.MustCompile(`[0-9A-Za-z_-]*[G-Zg-z_-][0-9A-Za-z_-]*`)
)

// without replaces such numbers in names.
func (s serials) without(names string) string {
	return numbers.ReplaceAllStringFunc(names, func(number string) string {
		key := strings.ToLower(number)
		if s[key] == "" {
			s[key] = fmt.Sprintf("%0*d", len(key), len(s)+1)
		}
		return s[key]
	})
}

// inText replaces them in the names that a text has, and leaves the text's own
// numbers, which are addresses in memory.
func (s serials) inText(text string) string {
	return named.ReplaceAllStringFunc(text, func(word string) string {
		if strings.HasPrefix(word, "0x") {
			return word
		}
		return s.without(word)
	})
}

// rename takes the numbers out of the names in sysfs, and out of links to them.
func (s serials) rename(entries map[string]entry) {
	names := slices.Sorted(maps.Keys(entries))
	for _, name := range names {
		e := entries[name]
		if !strings.HasPrefix(name, "sys/") {
			continue
		}
		delete(entries, name)
		e.link = s.without(e.link)
		entries[s.without(name)] = e
	}
}

// redact replaces the values in all files of a snapshot.
func redact(entries map[string]entry, log []string) {
	r := &redactor{gids: map[string]string{}, cards: map[string]string{}, names: serials{}, log: log}
	r.names.rename(entries)
	names := slices.Sorted(maps.Keys(entries))
	process := path.Join("proc", path.Clean(entries["proc/self"].link))
	for _, name := range names {
		e := entries[name]
		if e.dir || e.link != "" || e.unreadable {
			continue
		}
		if rest, ok := strings.CutPrefix(name, process+"/"); ok && entries["proc/self"].link != "" {
			e.data = r.redact(path.Join("proc/self", rest), e.data)
		} else {
			e.data = r.redact(name, e.data)
		}
		entries[name] = e
	}
	dropOtherNetworks(entries)
	unused(entries)
}

// dropOtherNetworks deletes the network devices that no RDMA device uses: their names give tunnels,
// containers and addresses away. Ports of a bond stay: they say why their function has no RDMA
// device.
func dropOtherNetworks(entries map[string]entry) {
	uses := map[string]bool{}
	for name, e := range entries {
		if path.Base(path.Dir(name)) == "ndevs" || path.Base(name) == "parent" {
			uses[strings.TrimSpace(string(e.data))] = true
		}
	}
	for name := range entries {
		_, device, ok := strings.Cut(name, "/net/")
		device, _, _ = strings.Cut(device, "/")
		if ok && strings.HasPrefix(name, "sys/") && !uses[device] && !strings.Contains(name, "/bonding_slave/") {
			delete(entries, name)
		}
	}
}

func (r *redactor) redact(name string, data []byte) []byte {
	switch {
	case path.Base(name) == "config" && strings.HasPrefix(name, "sys/"):
		return pci.WithoutSerial(data)
	case path.Base(name) == "vpd":
		return r.vpd(data)
	case path.Base(path.Dir(name)) == "gids":
		return []byte(r.gid(strings.TrimSpace(string(data))) + "\n")
	case path.Base(path.Dir(name)) == "ndevs" || slices.Contains([]string{"parent", "ibdev", "rdma.max", "rdma.current", "slaves"}, path.Base(name)):
		return []byte(r.names.without(string(data)))
	case name == "dev/kmsg":
		return []byte(r.names.inText(strings.Join(r.log, "")))
	case name == "proc/cmdline":
		return []byte(strings.Join(keep(strings.Fields(string(data)), hostcheck.Parameter), " ") + "\n")
	case name == "proc/driver/nvidia/params":
		// Others name GPUs by their UUIDs.
		return lines(data, gpucheck.NVIDIAParameter)
	case path.Base(name) == "properties" && path.Base(path.Dir(path.Dir(name))) == "nodes":
		// Others name the GPU by its number.
		return lines(data, func(line string) bool { return strings.HasPrefix(line, "gfx_target_version ") })
	case path.Base(name) == "information" && strings.HasPrefix(name, "proc/driver/nvidia/gpus/"):
		return lines(data, ofAnyGPU)
	case name == "proc/driver/nvidia/version":
		return builders.ReplaceAll(data, nil)
	case name == "proc/self/environ":
		return []byte(r.names.without(strings.Join(keep(strings.Split(string(data), "\x00"), harmless), "\x00")))
	case name == "proc/self/status":
		return lines(data, func(line string) bool {
			return strings.HasPrefix(line, "CapEff:") || strings.HasPrefix(line, "CapBnd:")
		})
	case name == "proc/self/mountinfo":
		return mounts(data)
	case name == "proc/self/cgroup" || name == "proc/1/cgroup":
		return group(data)
	case name == "proc/cpuinfo":
		// All processors are alike, and the first one decides.
		first, _, _ := bytes.Cut(data, []byte("\n\n"))
		return append(lines(first, func(line string) bool { return !strings.HasPrefix(strings.ToLower(line), "serial") }), "\n\n"...)
	}
	return data
}

// vpd keeps the fields that functions of one card have in common. They are numbers of the card, and
// are replaced.
func (r *redactor) vpd(data []byte) []byte {
	var kept []pci.VPDField
	for _, keyword := range []string{"V3", "VU"} {
		value := pci.VPDKeyword(data, keyword)
		if value == "" {
			continue
		}
		if r.cards[value] == "" {
			r.cards[value] = fmt.Sprintf("card-%d", len(r.cards)+1)
		}
		kept = append(kept, pci.VPDField{Keyword: keyword, Value: r.cards[value]})
	}
	return pci.VPD(kept...)
}

// ofAnyGPU reports a line of a GPU's information that others of its model have, too. The UUID is
// its own.
func ofAnyGPU(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	return slices.Contains([]string{"Model", "Video BIOS", "Bus Type", "DMA Size", "DMA Mask", "Bus Location", "Device Minor", "GPU Firmware", "GPU Excluded"}, strings.TrimSpace(name))
}

func keep(words []string, wanted func(string) bool) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !wanted(w) })
}

func lines(data []byte, wanted func(string) bool) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		if wanted(line) {
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}

// words match values of variables that name no machine and no person.
var words = regexp.MustCompile(`^(?:[0-9]+|[A-Z]+|[a-z0-9_]+(?:,[a-z0-9_]+)*)$`)

// builders match the user and the machine that built a driver, which is this machine with DKMS.
var builders = regexp.MustCompile(` *\([^()\s]*@[^()]*\)`)

// harmless reports a variable that a snapshot keeps.
func harmless(entry string) bool {
	name, value, ok := strings.Cut(entry, "=")
	return ok && name != "NCCL_HOSTID" && variables.Known(name) && words.MatchString(value)
}

// mounts keeps the mounts over /proc, /sys and /dev/shm, without their sources.
func mounts(data []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		point := f[4]
		if point != "/dev/shm" && point != "/proc" && point != "/sys" && !strings.HasPrefix(point, "/proc/") && !strings.HasPrefix(point, "/sys/") {
			continue
		}
		var options []string
		for _, option := range strings.Split(g[2], ",") {
			if option == "rw" || option == "ro" || strings.HasPrefix(option, "size=") {
				options = append(options, option)
			}
		}
		fmt.Fprintf(&out, "1 1 0:1 / %s rw - %s none %s\n", point, g[0], strings.Join(options, ","))
	}
	if out.Len() == 0 && len(data) > 0 {
		return []byte("1 1 0:1 / / rw - none none rw\n") // there were others
	}
	return []byte(out.String())
}

// groupName is the name of p2pcheck's control group in a snapshot.
const groupName = hostcheck.SnapshotGroup

func group(data []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		name := groupName
		if f[2] == "/" {
			name = "" // it has no name
		}
		for _, word := range []string{"docker", "kubepods", "containerd", "libpod", "lxc"} {
			if strings.Contains(f[2], word) {
				name += "/" + word
			}
		}
		if strings.HasPrefix(f[2], "/..") { // outside of those that this program sees
			name = "../" + name
		}
		// It is as deep as the real group: groups above have limits, too.
		for strings.Count(path.Clean("/"+name), "/") < strings.Count(path.Clean("/"+f[2]), "/") {
			name += "/group"
		}
		fmt.Fprintf(&out, "%s:%s:/%s\n", f[0], f[1], name)
	}
	return []byte(out.String())
}

// cgroups is the mount point of control groups, version 2.
const cgroups = "sys/fs/cgroup"

// ownGroup is the directory with the limits of this process's control group.
func ownGroup(cgroup []byte) string {
	for line := range strings.Lines(string(cgroup)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Join(cgroups, path.Clean("/"+strings.TrimSpace(rest)))
		}
	}
	return ""
}

// gid replaces an address by one of its kind.
func (r *redactor) gid(text string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(raw) != 16 {
		return "" // it was no address before, either
	}
	a := netip.AddrFrom16([16]byte(raw))
	if a.IsUnspecified() {
		return text
	}
	if known := r.gids[text]; known != "" {
		return known
	}
	var out [16]byte
	switch {
	case a.Is4In6():
		out[10], out[11], out[12] = 0xff, 0xff, 10
		if a.Unmap().IsLinkLocalUnicast() {
			out[12], out[13] = 169, 254
		}
	case a.IsLinkLocalUnicast():
		out[0], out[1] = 0xfe, 0x80
	default:
		copy(out[:], "\x20\x01\x0d\xb8")
	}
	binary.BigEndian.PutUint16(out[14:], uint16(len(r.gids)+1))
	var parts []string
	for i := 0; i < len(out); i += 2 {
		parts = append(parts, hex.EncodeToString(out[i:i+2]))
	}
	r.gids[text] = strings.Join(parts, ":")
	return r.gids[text]
}

// unused deletes the empty entries of GID tables, of which there are hundreds. The first entry stays, so
// that the table exists.
func unused(entries map[string]entry) {
	for name, e := range entries {
		if path.Base(path.Dir(name)) != "gids" || path.Base(name) == "0" {
			continue
		}
		if e.unreadable || strings.Trim(string(e.data), "0:\n") == "" {
			index, port := path.Base(name), path.Dir(path.Dir(name))
			delete(entries, name)
			delete(entries, path.Join(port, "gid_attrs/types", index))
			delete(entries, path.Join(port, "gid_attrs/ndevs", index))
		}
	}
}

// macs are addresses of network devices.
var macs = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b`)

// logged are the lines of the kernel's log that a check looks for, as /dev/kmsg
// has them.
func logged(all []string, cut bool) []string {
	first := 0
	if cut {
		first = 1
	}
	out := []string{fmt.Sprintf("6,%d,0,-;the kernel's log, as far as checks look at it\n", first)}
	for _, line := range all {
		if p2p.Loggable(line) {
			out = append(out, fmt.Sprintf("6,%d,0,-;%s\n", first+len(out), macs.ReplaceAllString(line, "00:00:00:00:00:00")))
		}
	}
	return out
}
