// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/redact"
)

// roots are directories whose presence in a copy says that the copy is complete below them.
var roots = []string{"sys/class", "sys/module", "sys/kernel", "sys/kernel/mm", "sys/kernel/security", "sys/bus", "sys/devices", "sys/fs", "proc/sys", "dev", "etc", "etc/libibverbs.d", "run", "usr", "usr/lib", "usr/lib64", "usr/local/lib", "lib64", "lib", "var", "boot"}

// collector gathers files below a root.
type collector struct {
	*Snapshot
	root                     string
	functionRules, endpoints []redact.Item
	cards                    redact.Item
}

// functions gathers the PCI functions that can be part of a way.
func (c *collector) functions() {
	names, err := c.list("sys/bus/pci/devices")
	if err != nil {
		return
	}
	for _, name := range names {
		dir := path.Join("sys/bus/pci/devices", name)
		for _, item := range c.functionRules {
			c.add(path.Join(dir, item.Pattern), item.Rule)
		}
		if c.matters(dir, name) {
			for _, item := range c.endpoints {
				c.glob(dir, strings.Split(item.Pattern, "/"), item.Rule)
			}
			if c.vendor(dir) == machine.VendorMellanox {
				c.add(path.Join(dir, c.cards.Pattern), c.cards.Rule)
			}
		}
		if fits(c.tree, c.most) != nil {
			return // Take returns the error
		}
	}
}

// matters reports a function that may be a GPU or NIC, moves data for one, is an
// NVMe controller or a bridge, or stands for a host bridge.
func (c *collector) matters(dir, name string) bool {
	class, err := files.ReadFile(filepath.Join(c.root, dir, "class"))
	driver, _ := files.Readlink(filepath.Join(c.root, dir, "driver"))
	base := strings.TrimPrefix(string(class), "0x")
	if err != nil || len(base) < 2 || strings.HasSuffix(name, ":00.0") || slices.Contains([]string{"softgpu", "vfio-pci", "mlx5_ib"}, path.Base(driver)) {
		return true
	}
	return strings.HasPrefix(base, "0108") || slices.Contains([]string{"02", "03", "05", "06", "0c", "12"}, base[:2])
}

// vendor is the vendor of a function, 0 if it is not known.
func (c *collector) vendor(dir string) uint64 {
	text, err := files.ReadFile(filepath.Join(c.root, dir, "vendor"))
	if err != nil {
		return 0
	}
	id, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 16)
	return id
}

func (c *collector) list(dir string) ([]string, error) {
	entries, err := files.ReadDir(filepath.Join(c.root, dir))
	if err != nil && !gone(err) {
		c.unread(dir)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// gone reports a file that the machine does not have.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

// unread marks a file or a directory that is there and cannot be read.
func (c *collector) unread(name string) { c.put(name, files.File{Link: path.Base(name)}) }

// put adds a file, or replaces one.
func (c *collector) put(name string, f files.File) {
	// Replace fails for a name below a link, and add has followed all links.
	_ = c.tree.Replace(name, f)
}

// mostNames is more than any directory has that the checks list, but for those of PCI functions.
const mostNames = 5000

// glob adds the files that a pattern matches, and marks directories that cannot be listed.
func (c *collector) glob(dir string, parts []string, rule *redact.Rule) {
	for i, part := range parts {
		if !strings.Contains(part, "*") {
			continue
		}
		at := path.Join(append([]string{dir}, parts[:i]...)...)
		names, err := c.list(at)
		if err != nil {
			return
		}
		if len(names) > mostNames && at != "sys/kernel/iommu_groups" { // a group may have one function
			c.unread(at)
			return
		}
		c.add(at, nil)
		for _, name := range names {
			if ok, _ := path.Match(part, name); ok {
				c.glob(path.Join(at, name), parts[i+1:], rule)
			}
		}
		return
	}
	c.add(path.Join(append([]string{dir}, parts...)...), rule)
}

// linkLimit is the greatest number of links on the way to a file.
const linkLimit = 40

// ownProcess is a link to the directory of the process that reads it.
const ownProcess = "proc/self"

// add keeps a file, and every link on the way to it. Without a rule, only its name.
func (c *collector) add(name string, rule *redact.Rule) {
	parts := strings.Split(path.Clean(name), "/")
	at := ""
	for links := 0; len(parts) > 0; {
		next := path.Join(at, parts[0])
		parts = parts[1:]
		if f, ok := c.tree.Find(next); ok && f.Dir {
			at = next
			continue
		} else if ok && f.Link != "" {
			if links++; links > linkLimit || f.Unreadable(next) {
				return
			}
			parts = append(strings.Split(strings.TrimPrefix(path.Join("/", at, f.Link), "/"), "/"), parts...)
			at = ""
			continue
		}
		st, err := files.Lstat(filepath.Join(c.root, next))
		switch {
		case gone(err):
			return
		case err != nil:
			c.unread(next)
			return
		case next == ownProcess: // the archive has no number of this process
			c.put(next, files.File{Dir: true})
			at = next
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := files.Readlink(filepath.Join(c.root, next))
			if links++; err != nil || links > linkLimit {
				c.unread(next)
				return
			}
			// ".." of the root is the root, as for a process whose root it is.
			whole := strings.TrimPrefix(path.Join("/", at, target), "/")
			if path.IsAbs(target) {
				whole = strings.TrimPrefix(path.Clean(target), "/")
			}
			c.put(next, files.File{Link: redact.Relative(at, whole)})
			parts = append(strings.Split(whole, "/"), parts...)
			at = ""
		case st.IsDir():
			c.put(next, files.File{Dir: true})
			at = next
		default:
			if len(parts) == 0 {
				c.file(next, rule, st.Mode().IsRegular())
			}
			return
		}
	}
}

// file adds a file, or only its name.
func (c *collector) file(name string, rule *redact.Rule, regular bool) {
	if _, there := c.tree.Find(name); there {
		return
	}
	if rule == nil || rule.Bare() {
		c.put(name, files.File{})
		return
	}
	if !regular { // a pipe or a device is not opened
		c.unread(name)
		return
	}
	data, err := c.contents(name, rule)
	if err != nil {
		c.unread(name)
		return
	}
	c.take(name, rule, data)
}

// take adds a file with the contents that a rule has kept.
func (c *collector) take(name string, rule *redact.Rule, data []byte) {
	c.put(name, files.File{Data: data})
	if c.rules != nil {
		c.rules[name] = rule
	}
}

func (c *collector) contents(name string, rule *redact.Rule) ([]byte, error) {
	if name == "proc/kallsyms" {
		return c.symbols(name)
	}
	data, err := c.read(name)
	if err != nil {
		return nil, err
	}
	return rule.Apply(c.redactor, data), nil
}

func (c *collector) read(name string) ([]byte, error) {
	f, err := files.Open(filepath.Join(c.root, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, fileLimit))
}

// symbols are the few lines of /proc/kallsyms that the checks look for.
func (c *collector) symbols(name string) ([]byte, error) {
	f, err := files.Open(filepath.Join(c.root, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return c.redactor.Symbols(f)
}
