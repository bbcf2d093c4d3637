// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/pci"
)

// The meaning of a tree.txt: attributes of functions, and the Tree made of them.

// numbers are the attributes that [Tree] makes the configuration space of.
var numbers = []string{"acs", "ats", "rebar", "devctl", "devctl2", "type", "config"}

// attributeFiles are the attributes that are files of a function, by their names.
var attributeFiles = []string{
	"vendor", "device", "class", "subsystem_vendor", "subsystem_device", "revision", "numa_node", "dma_mask_bits", "enable",
	"current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "d3cold_allowed", "resource",
	"power/runtime_status", "power/control", "resource0_resize", "resource1_resize", "resource2_resize",
	"mem_info_vram_total", "mem_info_vis_vram_total", "sriov_numvfs", "boot_vga",
}

// generations are the speeds of PCI Express as sysfs writes them.
var generations = map[string]string{"1": "2.5", "2": "5.0", "3": "8.0", "4": "16.0", "5": "32.0", "6": "64.0"}

// corpusAttribute reads one attribute, and returns it as those of [Tree], or as one
// that corpusTree.tree takes out: BARs, model, firmware, card, physfn.
func corpusAttribute(s string) ([]string, error) {
	if name, ok := strings.CutPrefix(s, "driver:"); ok && name != "" {
		return []string{s}, nil
	}
	if name, ok := strings.CutPrefix(s, "rdma:"); ok && name != "" {
		return []string{s}, nil
	}
	name, value, ok := strings.Cut(s, "=")
	if !ok || value == "" {
		return nil, fmt.Errorf("attribute %q is not NAME=VALUE", s)
	}
	switch {
	case slices.Contains(numbers, name):
		if _, err := strconv.ParseInt(value, 0, 32); err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		return []string{s}, nil
	case slices.Contains(attributeFiles, name):
		return []string{s}, nil
	}
	switch name {
	case "id":
		vendor, device, ok := strings.Cut(value, ":")
		if !ok || len(vendor) != 4 || len(device) != 4 {
			return nil, fmt.Errorf("id %q is not VENDOR:DEVICE", value)
		}
		return []string{"vendor=0x" + vendor, "device=0x" + device}, nil
	case "numa":
		return []string{"numa_node=" + value}, nil
	case "link":
		return linkAttributes(value)
	case "group":
		if number, kind, ok := strings.Cut(value, ":"); !ok || kind == "" || strings.Trim(number, "0123456789") != "" {
			return nil, fmt.Errorf("group %q is not NUMBER:TYPE", value)
		}
		return []string{s}, nil
	case "bar0", "bar1", "bar2", "bar3", "bar4", "bar5":
		_, _, err := barOf(value)
		return []string{s}, err
	case "model", "firmware", "card":
		return []string{s}, nil
	case "physfn":
		if !isAddress(value) {
			return nil, fmt.Errorf("physical function %q is no PCI address", value)
		}
		return []string{s}, nil
	}
	return nil, fmt.Errorf("unknown attribute %q", name)
}

// linkAttributes reads GENERATIONxWIDTH of a link at its full speed, or two of these
// with a slash between: the present speed, and the full one.
func linkAttributes(s string) ([]string, error) {
	is, can, ok := strings.Cut(s, "/")
	if !ok {
		can = is
	}
	var out []string
	for _, l := range []struct{ name, text string }{{"current", is}, {"max", can}} {
		generation, width, ok := strings.Cut(l.text, "x")
		speed := generations[generation]
		if !ok || speed == "" || width == "" {
			return nil, fmt.Errorf("link %q is not GENERATIONxWIDTH", l.text)
		}
		out = append(out, l.name+"_link_speed="+speed+"_GT/s_PCIe", l.name+"_link_width="+width)
	}
	return out, nil
}

// barOf reads SIZE@ADDRESS: 128G@0x200000000000. The address + is one that no other
// function has, which resources chooses.
func barOf(s string) (start, size uint64, err error) {
	text, at, ok := strings.Cut(s, "@")
	shift := strings.IndexAny("KMGT", text[max(len(text)-1, 0):])
	if !ok || text == "" || shift < 0 {
		return 0, 0, fmt.Errorf("BAR %q is not SIZE@ADDRESS", s)
	}
	if size, err = strconv.ParseUint(text[:len(text)-1], 10, 32); err != nil {
		return 0, 0, err
	}
	if at != "+" {
		start, err = strconv.ParseUint(at, 0, 64)
	}
	return start, size << (10 * (shift + 1)), err
}

// attr is the last value of an attribute.
func (f *corpusFunction) attr(name string) (string, bool) {
	for _, a := range slices.Backward(f.attrs) {
		if value, ok := strings.CutPrefix(a, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// rdma are the RDMA devices of a function.
func (f *corpusFunction) rdma() []string {
	var out []string
	for _, a := range f.attrs {
		if name, ok := strings.CutPrefix(a, "rdma:"); ok && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// gpus are the display controllers and accelerators, by address, with their paths.
func (c *corpusTree) gpus() map[string]string {
	out := map[string]string{}
	for addr, f := range c.functions {
		class, _ := f.attr("class")
		if strings.HasPrefix(class, "0x03") || strings.HasPrefix(class, "0x12") {
			out[addr] = f.dir
		}
	}
	return out
}

// nics are the RDMA devices, with the paths of their functions.
func (c *corpusTree) nics() map[string]string {
	out := map[string]string{}
	for _, f := range c.functions {
		for _, name := range f.rdma() {
			out[name] = f.dir
		}
	}
	for name, target := range c.links {
		if path.Dir(name) == "sys/class/infiniband" {
			dir := strings.TrimPrefix(target, "sys/devices/")
			dir, _, _ = strings.Cut(dir, "/infiniband/")
			out[path.Base(name)] = dir
		}
	}
	return out
}

// finish adds the files that follow from the directives.
func (c *corpusTree) finish() error {
	var errs []error
	for i, addr := range c.order {
		f := c.functions[addr]
		at := path.Join("sys/devices", f.dir)
		if _, ok := f.attr("group"); !ok && c.groups != "" {
			f.attrs = append(f.attrs, fmt.Sprintf("group=%d:%s", i, c.groups))
		}
		if c.counters {
			for kind, total := range map[string]string{"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"} {
				c.files[at+"/aer_dev_"+kind] = "TOTAL_ERR_" + total + " 0\n"
			}
		}
		if card, ok := f.attr("card"); ok {
			// The two fields that mlx5's functions of one card have in common.
			c.files[at+"/vpd"] = string(pci.VPD(pci.VPDField{Keyword: "V3", Value: card}, pci.VPDField{Keyword: "VU", Value: card}))
		}
		if other, ok := f.attr("physfn"); ok {
			if c.functions[other] == nil {
				errs = append(errs, fmt.Errorf("function %s: no function is %s", addr, other))
				continue
			}
			c.links[at+"/physfn"] = path.Join("sys/devices", c.functions[other].dir)
		}
	}
	c.resources()
	c.nvidiaFiles()
	errs = append(errs, c.portFiles())
	return errors.Join(errs...)
}

// resources are the regions of functions that have BARs.
func (c *corpusTree) resources() {
	const registers, memory = 0x40200, 0x14220c // of 32 bits; of 64 bits, prefetchable
	for n, addr := range c.order {
		f := c.functions[addr]
		text, any := "", false
		for i := range 6 {
			value, ok := f.attr(fmt.Sprintf("bar%d", i))
			if !ok {
				text += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				continue
			}
			start, size, _ := barOf(value)
			flags := memory
			if strings.HasSuffix(value, "@+") {
				start = 0x200000000000 + uint64(n)<<40
			}
			if start < 1<<32 {
				flags = registers
			}
			text += fmt.Sprintf("0x%016x 0x%016x 0x%016x\n", start, start+size-1, flags)
			any = true
		}
		if any {
			text += "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" // the ROM
			c.files[path.Join("sys/devices", f.dir, "resource")] = text
		}
	}
}

// nvidiaFiles are what the driver says of its GPUs.
func (c *corpusTree) nvidiaFiles() {
	minor := 0
	for _, addr := range c.order {
		f := c.functions[addr]
		model, ok := f.attr("model")
		if !ok || model == "-" {
			continue
		}
		text := fmt.Sprintf("Model: \t\t %s\nBus Location: \t %s\nDevice Minor: \t %d\n", strings.ReplaceAll(model, "_", " "), addr, minor)
		if firmware, ok := f.attr("firmware"); ok {
			text += "GPU Firmware: \t " + firmware + "\n"
		}
		c.files["proc/driver/nvidia/gpus/"+addr+"/information"] = text
		minor++
	}
}

// portFiles are those of RDMA devices that a ports directive names. Addresses and
// names in them are ours.
func (c *corpusTree) portFiles() error {
	used := make([]bool, len(c.ports))
	n := 0
	for _, addr := range c.order {
		f := c.functions[addr]
		for _, name := range f.rdma() {
			i := slices.IndexFunc(c.ports, func(p corpusPorts) bool { ok, _ := path.Match(p.pattern, name); return ok })
			if i < 0 {
				continue
			}
			used[i] = true
			c.port(path.Join("sys/devices", f.dir, "infiniband", name), name, n, c.ports[i])
			n++
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("ports %s: no RDMA device has such a name, or an earlier line took it", c.ports[i].pattern)
	}
	return nil
}

func (c *corpusTree) port(dir, name string, n int, p corpusPorts) {
	net, kind, lid := fmt.Sprintf("eth%d", n), "RoCE v2", "0x0"
	if p.layer == "InfiniBand" {
		net, kind, lid = fmt.Sprintf("ib%d", n), "IB/RoCE v1", "0x1"
	}
	states := map[string][2]string{"ACTIVE": {"4: ACTIVE", "5: LinkUp"}, "DOWN": {"1: DOWN", "3: Disabled"}, "INIT": {"2: INIT", "5: LinkUp"}}
	state, ok := states[p.state]
	if !ok {
		state = [2]string{p.state, p.state}
	}
	up := map[bool]string{true: "up", false: "down"}[p.state == "ACTIVE"]
	files := map[string]string{
		"node_type": "1: CA", "node_guid": fmt.Sprintf("0200:0000:0000:%04x", n),
		"ports/1/state": state[0], "ports/1/phys_state": state[1], "ports/1/link_layer": p.layer,
		"ports/1/rate": p.rate + " Gb/sec (4X)", "ports/1/sm_lid": lid,
		"ports/1/gids/0": fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fe00:%04x", n), "ports/1/gid_attrs/types/0": kind, "ports/1/gid_attrs/ndevs/0": net,
	}
	if p.layer == "Ethernet" {
		maps.Copy(files, map[string]string{
			"ports/1/gids/3":            fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:%04x", n),
			"ports/1/gid_attrs/types/3": kind, "ports/1/gid_attrs/ndevs/3": net,
		})
	}
	for file, text := range files {
		c.missing(dir+"/"+file, text)
	}
	c.missing(fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/ibdev", n), name)
	c.missing("sys/class/net/"+net+"/operstate", up)
	c.missing("sys/class/net/"+net+"/mtu", "9000")
	c.missing("sys/class/net/"+net+"/address", fmt.Sprintf("02:00:00:00:00:%02x", n))
}

// missing adds a file, if a file directive has not.
func (c *corpusTree) missing(name, text string) {
	if _, ok := c.files[name]; !ok {
		c.files[name] = text + "\n"
	}
}

// tree makes the Tree.
func (c *corpusTree) tree() Tree {
	t := Tree{Release: c.release, CPU: c.cpu, Files: c.files, Links: c.links, Texts: c.texts}
	if t.Config = strings.Join(c.config, "\n") + "\n" + ConfigEnd; c.noFile || len(c.config) == 0 {
		t.Config = "-"
	}
	if t.Release == "" {
		t.Release = "-"
	}
	if t.CPU == "" {
		t.CPU = "-"
	}
	for _, addr := range c.order {
		f := c.functions[addr]
		t.Functions += f.dir
		values := map[string]string{}
		var names []string
		for _, a := range f.attrs {
			name, _, _ := strings.Cut(a, "=")
			if strings.HasPrefix(name, "driver:") {
				name = "driver"
			}
			if _, ok := values[name]; !ok {
				names = append(names, name)
			}
			values[name] = a
		}
		for _, name := range names {
			switch name {
			case "model", "firmware", "card", "physfn":
			case "bar0", "bar1", "bar2", "bar3", "bar4", "bar5":
			default:
				t.Functions += " " + values[name]
			}
		}
		t.Functions += "\n"
	}
	return t
}
