// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// corpusTree is a tree.txt as it is read.
type corpusTree struct {
	dir     string // of all machines
	release string
	cpu     string
	config  []string // lines
	noFile  bool     // the configuration is not there

	order     []string                   // functions, by address
	functions map[string]*corpusFunction // by address
	defines   map[string][]string        // attributes, by name
	files     map[string]string          // texts, by path
	links     map[string]string          // as those of Tree
	texts     map[string]string          // likewise
	groups    string                     // the type of the groups of all other functions
	ports     []corpusPorts              // in order
	counters  bool                       // ports count errors
	reading   []string                   // files that are being read, against circles
	parents   []string                   // paths of the functions above, by depth
}

// corpusFunction is a PCI function.
type corpusFunction struct {
	dir   string // below devices/
	attrs []string
}

// corpusPorts is a ports directive.
type corpusPorts struct{ pattern, layer, rate, state string }

// directives are the first words of lines.
func directives() map[string]func(c *corpusTree, rest string) error {
	return map[string]func(c *corpusTree, rest string) error{
		"include": func(c *corpusTree, rest string) error { return c.include(path.Join("common", rest+".txt")) },
		"machine": func(c *corpusTree, rest string) error { return c.include(path.Join(rest, "tree.txt")) },
		"release": func(c *corpusTree, rest string) error { c.release = rest; return nil },
		"config":  (*corpusTree).setConfig,
		"cpu":     (*corpusTree).setCPU,
		"define":  (*corpusTree).define,
		"set":     (*corpusTree).set,
		"drop":    (*corpusTree).drop,
		"module":  (*corpusTree).module,
		"nvidia":  (*corpusTree).nvidia,
		"ports":   (*corpusTree).setPorts,
		"groups":  func(c *corpusTree, rest string) error { c.groups = rest; return nil },
		"aer":     func(c *corpusTree, _ string) error { c.counters = true; return nil },
		"file":    (*corpusTree).file,
		"link":    func(c *corpusTree, rest string) error { return arrow(c.links, rest) },
		"text":    func(c *corpusTree, rest string) error { return arrow(c.texts, rest) },
	}
}

// parseTree reads a file below the corpus's directory.
func parseTree(dir, name string) (*corpusTree, error) {
	c := &corpusTree{
		dir: dir, functions: map[string]*corpusFunction{}, defines: map[string][]string{},
		files: map[string]string{}, links: map[string]string{}, texts: map[string]string{},
	}
	if err := c.include(name); err != nil {
		return nil, err
	}
	return c, c.finish()
}

func (c *corpusTree) include(name string) error {
	if slices.Contains(c.reading, name) {
		return fmt.Errorf("%s includes itself", name)
	}
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	c.reading = append(c.reading, name)
	defer func() { c.reading = c.reading[:len(c.reading)-1] }()
	c.parents = nil
	var errs []error
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if err := c.line(strings.TrimRight(line, " \n")); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, n, err))
		}
	}
	c.parents = nil
	return errors.Join(errs...)
}

func (c *corpusTree) line(line string) error {
	text := strings.TrimLeft(line, " ")
	if text == "" || strings.HasPrefix(text, "#") {
		return nil
	}
	if depth := len(line) - len(text); depth > 0 {
		return c.function(depth, strings.Fields(text))
	}
	if strings.HasPrefix(text, "pci") && !strings.Contains(text, " ") {
		c.parents = []string{text}
		return nil
	}
	c.parents = nil
	word, rest, _ := strings.Cut(text, " ")
	do, ok := directives()[word]
	if !ok {
		return fmt.Errorf("unknown directive %q", word)
	}
	return do(c, strings.TrimSpace(rest))
}

// function reads "ADDRESS ATTRIBUTE…", which is below the nearest line above with two
// blanks less in front.
func (c *corpusTree) function(depth int, fields []string) error {
	above := depth / 2
	if depth%2 != 0 || above > len(c.parents) || above == 0 {
		return fmt.Errorf("function %s is below nothing: a bus or function with %d blanks in front is missing", fields[0], depth-2)
	}
	addr := fields[0]
	if !isAddress(addr) {
		return fmt.Errorf("%q is no PCI address", addr)
	}
	if c.functions[addr] != nil {
		return fmt.Errorf("function %s is there already", addr)
	}
	dir := path.Join(c.parents[above-1], addr)
	c.parents = append(c.parents[:above], dir)
	attrs, err := c.expand(fields[1:])
	c.functions[addr] = &corpusFunction{dir: dir, attrs: attrs}
	c.order = append(c.order, addr)
	return err
}

func isAddress(s string) bool {
	var domain, bus, device, function uint
	n, err := fmt.Sscanf(s, "%x:%x:%x.%x", &domain, &bus, &device, &function)
	return err == nil && n == 4 && bus <= 0xff && device < 32 && function < 8 &&
		s == fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// expand replaces names of a define, and checks the rest.
func (c *corpusTree) expand(fields []string) ([]string, error) {
	var out []string
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f, "@"); ok {
			attrs, ok := c.defines[name]
			if !ok {
				return nil, fmt.Errorf("nothing is defined as %q", name)
			}
			out = append(out, attrs...)
			continue
		}
		attrs, err := corpusAttribute(f)
		if err != nil {
			return nil, err
		}
		out = append(out, attrs...)
	}
	return out, nil
}

func (c *corpusTree) define(rest string) error {
	name, attrs, ok := strings.Cut(rest, " = ")
	if !ok || strings.Contains(name, " ") {
		return errors.New("define wants NAME = ATTRIBUTES")
	}
	var err error
	c.defines[name], err = c.expand(strings.Fields(attrs))
	return err
}

// set adds attributes to functions that are there: those whose address matches a
// pattern, or that have an attribute.
func (c *corpusTree) set(rest string) error {
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return errors.New("set wants a pattern of addresses or an attribute, and attributes")
	}
	key, value, byAttr := strings.Cut(fields[0], "=")
	attrs, err := c.expand(fields[1:])
	found := false
	for addr, f := range c.functions {
		ok, _ := path.Match(fields[0], addr)
		if has, is := f.attr(key); byAttr {
			ok = is && has == value
		}
		if ok {
			f.attrs = append(f.attrs, attrs...)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no function is %s", fields[0])
	}
	return err
}

// drop takes away functions, files and links.
func (c *corpusTree) drop(pattern string) error {
	before := len(c.functions) + len(c.files) + len(c.links) + len(c.texts)
	is := func(name, _ string) bool { ok, _ := path.Match(pattern, name); return ok }
	maps.DeleteFunc(c.files, is)
	maps.DeleteFunc(c.links, is)
	maps.DeleteFunc(c.texts, is)
	maps.DeleteFunc(c.functions, func(addr string, _ *corpusFunction) bool { return is(addr, "") })
	c.order = slices.DeleteFunc(c.order, func(addr string) bool { return c.functions[addr] == nil })
	if before == len(c.functions)+len(c.files)+len(c.links)+len(c.texts) {
		return fmt.Errorf("nothing is %s", pattern)
	}
	return nil
}

func (c *corpusTree) file(rest string) error {
	name, text, ok := strings.Cut(rest, " =")
	if !ok || !localPath(name) {
		return errors.New("file wants PATH = TEXT")
	}
	var err error
	c.files[name], err = unescape(strings.TrimPrefix(text, " "))
	return err
}

// unescape reads a text with the escapes of Go. It ends in a new line, but for an
// empty one, and one that ends in a zero.
func unescape(s string) (string, error) {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	if err != nil {
		return "", fmt.Errorf("text %q: %w", s, err)
	}
	if text != "" && !strings.HasSuffix(text, "\x00") && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text, nil
}

func localPath(name string) bool {
	return name != "" && filepath.IsLocal(name) && path.Clean(name) == name && !strings.Contains(name, " ")
}

func arrow(to map[string]string, rest string) error {
	name, target, ok := strings.Cut(rest, " -> ")
	if !ok || !localPath(name) || target == "" {
		return errors.New("a link wants PATH -> TARGET")
	}
	to[name] = target
	return nil
}

// setConfig adds options of the kernel; "-" is a configuration that is not there.
func (c *corpusTree) setConfig(rest string) error {
	if rest == "-" {
		c.noFile = true
		return nil
	}
	c.noFile = false
	for _, option := range strings.Fields(rest) {
		name, value, ok := strings.Cut(option, "=")
		if !ok || !strings.HasPrefix(name, "CONFIG_") || value == "" {
			return fmt.Errorf("option %q is not CONFIG_NAME=VALUE", option)
		}
		line := option
		if value == "n" {
			line = "# " + name + " is not set"
		}
		c.config = slices.DeleteFunc(c.config, func(was string) bool {
			return strings.HasPrefix(was, name+"=") || was == "# "+name+" is not set"
		})
		c.config = append(c.config, line)
	}
	return nil
}

// cpuKeys are the keys of a cpu directive and those of cpuinfo.
var cpuKeys = []struct{ key, line string }{
	{"vendor", "vendor_id\t: "}, {"family", "cpu family\t: "}, {"model", "model\t\t: "}, {"name", "model name\t: "},
	{"implementer", "CPU implementer\t: "}, {"part", "CPU part\t: "}, {"cpu", "cpu\t\t: "}, {"flags", "flags\t\t: fpu "},
}

func (c *corpusTree) setCPU(rest string) error {
	if rest == "-" {
		c.cpu = "-"
		return nil
	}
	c.cpu = "processor\t: 0\n"
	for _, field := range strings.Fields(rest) {
		key, value, _ := strings.Cut(field, "=")
		i := slices.IndexFunc(cpuKeys, func(k struct{ key, line string }) bool { return k.key == key })
		if i < 0 || value == "" {
			return fmt.Errorf("cpu has no %q", field)
		}
		blank := "_"
		if key == "flags" {
			blank = "," // their names have underscores
		}
		c.cpu += cpuKeys[i].line + strings.ReplaceAll(value, blank, " ") + "\n"
	}
	if strings.Contains(c.cpu, "vendor_id") && !strings.Contains(c.cpu, "flags\t") {
		c.cpu += "flags\t\t: fpu\n" // every x86 has the line, and no hypervisor is in it
	}
	c.cpu += "\n"
	return nil
}

// module reads "NAME [TAINT [VERSION]]"; "-" is a module without taint.
func (c *corpusTree) module(rest string) error {
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 3 {
		return errors.New("module wants NAME [TAINT [VERSION]]")
	}
	dir := path.Join("sys/module", fields[0])
	taint := ""
	if len(fields) > 1 && fields[1] != "-" {
		taint = fields[1]
	}
	c.files[dir+"/taint"] = taint + "\n"
	c.files[dir+"/initstate"] = "live\n"
	if len(fields) > 2 {
		c.files[dir+"/version"] = fields[2] + "\n"
	}
	return nil
}

// nvidia reads "open|proprietary VERSION [ARCHITECTURE]".
func (c *corpusTree) nvidia(rest string) error {
	fields := strings.Fields(rest)
	arch := "x86_64"
	if len(fields) == 3 {
		arch = fields[2]
	} else if len(fields) != 2 {
		return errors.New("nvidia wants open|proprietary VERSION [ARCHITECTURE]")
	}
	text, taint := "NVRM version: NVIDIA UNIX Open Kernel Module for "+arch+"  "+fields[1]+"  Release Build\n", "OE"
	switch fields[0] {
	case "open":
	case "proprietary":
		text, taint = "NVRM version: NVIDIA UNIX "+arch+" Kernel Module  "+fields[1]+"\n", "POE"
	default:
		return fmt.Errorf("nvidia is open or proprietary, not %q", fields[0])
	}
	c.files["proc/driver/nvidia/version"] = text
	return c.module("nvidia " + taint + " " + fields[1])
}

func (c *corpusTree) setPorts(rest string) error {
	fields := strings.Fields(rest)
	if len(fields) != 3 && len(fields) != 4 {
		return errors.New("ports wants PATTERN LAYER RATE [STATE]")
	}
	p := corpusPorts{pattern: fields[0], layer: fields[1], rate: fields[2], state: "ACTIVE"}
	if len(fields) == 4 {
		p.state = fields[3]
	}
	if p.layer != "Ethernet" && p.layer != "InfiniBand" {
		return fmt.Errorf("link layer %q", p.layer)
	}
	c.ports = append(c.ports, p)
	return nil
}
