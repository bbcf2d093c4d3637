// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// function is a PCI function of the directory.
type function struct {
	dir   string // below sys/devices
	below []string
	keep  bool
}

var (
	busName  = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	addrName = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// functions prints the functions that count, each below the bridge above it.
func (c *converter) functions() error {
	var all []string
	devices := filepath.Join(c.root, "sys/devices")
	err := filepath.WalkDir(devices, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == devices {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		if rel, _ := filepath.Rel(devices, name); addrName.MatchString(d.Name()) {
			all = append(all, rel)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		c.placeless()
		return nil
	}
	keep := map[string]bool{}
	first := map[string]string{} // of each bus
	slices.Sort(all)
	for _, dir := range all {
		bus, rest, _ := strings.Cut(dir, "/")
		if !busName.MatchString(bus) {
			continue
		}
		if !strings.Contains(rest, "/") && first[bus] == "" {
			first[bus] = dir
		}
		if c.listed(dir) && c.counts(dir) {
			for d := dir; strings.Contains(d, "/"); d = path.Dir(d) {
				keep[d] = true
			}
		}
	}
	for bus, dir := range first { // the kernel's list of host bridges goes by it
		for d := range keep {
			if strings.HasPrefix(d, bus+"/") {
				keep[dir] = true
				break
			}
		}
	}
	bus := ""
	for _, dir := range sorted(keep) {
		if b, _, _ := strings.Cut(dir, "/"); b != bus {
			bus = b
			c.line("%s", bus)
		}
		line := strings.Repeat("  ", strings.Count(dir, "/")) + path.Base(dir)
		c.line("%s", line+c.attributes(path.Join("sys/devices", dir), path.Base(dir)))
	}
	return nil
}

// placeless prints functions of which the bus has directories in place of links.
func (c *converter) placeless() {
	for _, name := range c.glob("sys/bus/pci/devices/*") {
		if addr := path.Base(name); c.isKind(name) {
			c.line("# The tree does not have the place of this function.\npci%s", addr[:strings.LastIndex(addr, ":")])
			c.line("  %s", addr+c.attributes(name, addr))
		}
	}
}

// listed reports a function that the bus has, as it does all of a real machine. The
// directories of made-up trees can have one twice.
func (c *converter) listed(dir string) bool {
	link, err := os.Readlink(filepath.Join(c.root, "sys/bus/pci/devices", path.Base(dir)))
	return errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(link, "/devices/"+dir)
}

// counts reports a GPU, a NIC, or a function that works for one.
func (c *converter) counts(dir string) bool { return c.isKind(path.Join("sys/devices", dir)) }

func (c *converter) isKind(dir string) bool {
	class, _ := c.read(dir + "/class")
	for _, prefix := range []string{"0x03", "0x12", "0x02", "0x0c06"} {
		if strings.HasPrefix(class, prefix) {
			return true
		}
	}
	_, err := os.Stat(filepath.Join(c.root, dir, "infiniband"))
	return err == nil
}

// asFiles are attributes that are files.
var asFiles = []string{
	"subsystem_vendor", "subsystem_device", "dma_mask_bits", "d3cold_allowed", "power/runtime_status", "power/control",
	"resource0_resize", "resource1_resize", "resource2_resize", "mem_info_vram_total", "mem_info_vis_vram_total", "sriov_numvfs", "boot_vga",
}

// attributes are those of one function, as tree.txt has them.
func (c *converter) attributes(dir, addr string) string {
	out := ""
	add := func(format string, args ...any) { out += " " + fmt.Sprintf(format, args...) }
	get := func(name string) string {
		text, _ := c.read(dir + "/" + name)
		return strings.ReplaceAll(strings.TrimSpace(text), " ", "_")
	}
	for _, name := range []string{"class", "vendor", "device"} {
		switch value := get(name); {
		case value == "":
			add("%s=-", name)
		case name == "class" || get("device") == "":
			add("%s=%s", name, value)
		case name == "device":
			add("id=%s:%s", strings.TrimPrefix(get("vendor"), "0x"), strings.TrimPrefix(value, "0x"))
		}
	}
	if driver := c.link(dir + "/driver"); driver != "" {
		add("driver:%s", driver)
	}
	if node := get("numa_node"); node != "" {
		add("numa=%s", node)
	}
	if link := c.links(get); link != "" {
		add("%s", link)
	}
	add("%s", c.config(addr))
	if group := c.link(dir + "/iommu_group"); group != "" {
		kind, _ := c.read("sys/kernel/iommu_groups/" + group + "/type")
		if kind = strings.TrimSpace(kind); kind == "" {
			kind = "-"
		}
		add("group=%s:%s", group, kind)
	}
	for _, name := range asFiles {
		if value := get(name); value != "" && !strings.HasPrefix(name, "subsystem") {
			add("%s=%s", name, value)
		}
	}
	out += c.bars(dir) + c.card(dir)
	if text, ok := c.read("proc/driver/nvidia/gpus/" + addr + "/information"); ok {
		add("model=%s", strings.ReplaceAll(valueOf(text, "Model:"), " ", "_"))
		if firmware := valueOf(text, "GPU Firmware:"); firmware != "" {
			add("firmware=%s", firmware)
		}
	}
	if physical := c.link(dir + "/physfn"); physical != "" {
		add("physfn=%s", physical)
	}
	for _, ib := range c.glob(dir + "/infiniband/*") {
		add("rdma:%s", path.Base(ib))
		c.port(ib)
	}
	return strings.TrimRight(out, " ")
}

// generations are those of PCI Express, by the speeds of sysfs.
var generations = map[string]string{"2.5": "1", "5": "2", "5.0": "2", "8": "3", "8.0": "3", "16": "4", "16.0": "4", "32": "5", "32.0": "5", "64": "6", "64.0": "6"}

// links is the link attribute of a function.
func (c *converter) links(get func(string) string) string {
	var both []string
	for _, name := range []string{"current", "max"} {
		speed, _, _ := strings.Cut(get(name+"_link_speed"), "_")
		generation, width := generations[speed], get(name+"_link_width")
		if generation == "" || width == "" || width == "0" || width == "255" {
			return ""
		}
		both = append(both, generation+"x"+width)
	}
	return "link=" + strings.Join(slices.Compact(both), "/")
}

// link is the last name of a link's target.
func (c *converter) link(name string) string {
	target, err := os.Readlink(filepath.Join(c.root, name))
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// config is what counts of the configuration space.
func (c *converter) config(addr string) string {
	a, err := pciaddr.Parse(addr)
	if err != nil {
		return ""
	}
	name := filepath.Join(c.root, "sys/bus/pci/devices", addr, "config")
	data, err := os.ReadFile(name)
	if err != nil {
		return "config=-1"
	}
	if len(data) < extendedSpace {
		return fmt.Sprintf("config=%d", len(data))
	}
	var out []string
	at := capability(data, 0x10)
	if at == 0 {
		return ""
	}
	le := binary.LittleEndian
	out = append(out, fmt.Sprintf("type=%d", le.Uint16(data[at+2:])>>4&15))
	if devctl := le.Uint16(data[at+8:]); devctl != 0x5050 {
		out = append(out, fmt.Sprintf("devctl=%#x", devctl))
	}
	if devctl2 := le.Uint16(data[at+0x28:]); devctl2 != 0 {
		out = append(out, fmt.Sprintf("devctl2=%#x", devctl2))
	}
	config, err := pci.ReadConfig(sysfs.New(filepath.Join(c.root, "sys")), a)
	if err != nil {
		return strings.Join(out, " ")
	}
	if acs, err := config.ACS(); err == nil && acs.Present {
		out = append(out, fmt.Sprintf("acs=%#02x", uint16(acs.Ctrl)))
	}
	if has, on, err := config.ATS(); err == nil && has {
		out = append(out, map[bool]string{true: "ats=0x8000", false: "ats=0"}[on])
	}
	return strings.Join(out, " ")
}

// capability finds one of the first 256 bytes.
func capability(data []byte, id byte) int {
	for at, n := int(data[0x34]&^3), 0; at >= 0x40 && n < 48; at, n = int(data[at+1]&^3), n+1 {
		if data[at] == id {
			return at
		}
	}
	return 0
}

// bars are the regions of 64 MiB and more, which hold memory and no registers.
func (c *converter) bars(dir string) string {
	text, _ := c.read(dir + "/resource")
	out, n := "", 0
	for line := range strings.Lines(text) {
		var start, end, flags uint64
		if _, err := fmt.Sscanf(line, "%v %v %v", &start, &end, &flags); err == nil && n < 6 && end > start && flags&0x200 != 0 {
			if size := end - start + 1; size >= 64<<20 {
				out += fmt.Sprintf(" bar%d=%s@%#x", n, inUnits(size), start)
			}
		}
		n++
	}
	return out
}

func inUnits(size uint64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "T"}, {30, "G"}, {20, "M"}} {
		if size>>u.shift<<u.shift == size {
			return strconv.FormatUint(size>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatUint(size>>10, 10) + "K"
}

// card is a name for the card that a function is of: functions of one have the same.
func (c *converter) card(dir string) string {
	vpd, _ := c.read(dir + "/vpd")
	key := pci.VPDKeyword([]byte(vpd), "V3")
	if key == "" {
		return ""
	}
	if c.cards[key] == "" {
		c.cards[key] = fmt.Sprintf("card%d", len(c.cards))
	}
	return " card=" + c.cards[key]
}

// port prints a line on an RDMA device's port, if the directory has its files.
func (c *converter) port(dir string) {
	layer, ok := c.read(dir + "/ports/1/link_layer")
	if !ok {
		return
	}
	state, _ := c.read(dir + "/ports/1/state")
	rate, _ := c.read(dir + "/ports/1/rate")
	speed, _, _ := strings.Cut(strings.TrimSpace(rate), " ")
	if speed == "" {
		speed = "0"
	}
	line := fmt.Sprintf("ports %s %s %s", path.Base(dir), strings.TrimSpace(layer), speed)
	if _, name, ok := strings.Cut(strings.TrimSpace(state), ": "); ok && name != "ACTIVE" {
		line += " " + name
	}
	c.ports = append(c.ports, line)
}

// extendedSpace is PCI_CFG_SPACE_EXP_SIZE, in bytes.
const extendedSpace = 4 << 10
