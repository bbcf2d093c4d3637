// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/redact"
)

// Snapshot has the files of a machine that may be given to others. [Take] makes it. Only one goroutine may use it at a time.
type Snapshot struct {
	tree     *files.Tree // the names are the machine's, the contents those of the archive
	redactor *redact.Redactor
	rules    map[string]*redact.Rule // by the name on the machine; nil unless they are asked for
	most     int                     // files
}

// ErrPart means that a source is only a sysfs or a procfs, or has parts of several machines.
var ErrPart = errors.New("a snapshot is taken of a whole machine: of this one, or of a copy with sys and proc below its root")

// Option changes what Take does.
type Option func(*Snapshot)

// WithRules is an Option that keeps the rule of each file, for [Snapshot.Show].
func WithRules(s *Snapshot) { s.rules = map[string]*redact.Rule{} }

// Take collects the files of this machine, or of the copy below Root, which it confines meanwhile. It returns
// ErrPart for a source with other fields than Root, because a snapshot is of a whole machine. It also returns an
// error for a root without a sysfs, and for a machine with more files than an archive may have.
func Take(of machine.Source, options ...Option) (*Snapshot, error) {
	if of != (machine.Source{Root: of.Root}) {
		return nil, ErrPart
	}
	s := &Snapshot{tree: files.NewTree(), redactor: redact.New(), most: entryLimit}
	for _, option := range options {
		option(s)
	}
	root := of.Root
	if root == "" {
		root = "/"
	}
	release, err := of.Confine()
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := files.ReadDir(filepath.Join(root, "sys")); err != nil {
		return nil, err
	}
	c := &collector{Snapshot: s, root: root}
	c.endpoints, c.functionRules, c.cards = redact.OfEndpoints(), redact.OfFunctions(), redact.OfCards()
	for _, dir := range roots {
		c.add(dir, nil)
	}
	c.functions()
	for _, item := range redact.Taken() {
		c.glob("", strings.Split(item.Pattern, "/"), item.Rule)
	}
	c.log(of)
	c.groups()
	if err := fits(s.tree, s.most); err != nil {
		return nil, fmt.Errorf("this machine has more files that checks read than a snapshot can have (%d files and %d MiB): let p2pcheck look at them in their place, by --root", s.most, totalLimit>>20)
	}
	for name, f := range s.ofMachine() {
		if as, _ := s.renamed(name, f); len(as) > NameLimit || strings.Count(as, "/") >= depthLimit {
			return nil, fmt.Errorf("/%s is deeper, or its name is longer, than a snapshot can have", name)
		}
	}
	return s, nil
}

// Replaced returns the texts of the machine that are replaced, as keys, and the texts in the snapshot. The map is the
// caller's.
func (s *Snapshot) Replaced() map[string]string { return s.redactor.Replaced() }

// Len returns the number of files, links and directories.
func (s *Snapshot) Len() int {
	n := 0
	for range s.ofMachine() {
		n++
	}
	return n
}

// Unread returns the names, on the machine, of the files that Take could not read, in order.
func (s *Snapshot) Unread() []string {
	out := []string{}
	for name, f := range s.ofMachine() {
		if f.Unreadable(name) {
			out = append(out, "/"+name)
		}
	}
	slices.Sort(out)
	return out
}

// Cut returns the number of PCI functions of which the snapshot has only the first 64 bytes of the configuration
// space, because the kernel shows a process without CAP_SYS_ADMIN no more.
func (s *Snapshot) Cut() (n int) {
	const shown = 64
	for name, f := range s.ofMachine() {
		if path.Base(name) == "config" && strings.HasPrefix(name, "sys/") && len(f.Data) == shown {
			n++
		}
	}
	return n
}

// log adds the kernel's log. On this machine it may come from elsewhere than /dev/kmsg.
func (c *collector) log(of machine.Source) {
	const name = "dev/kmsg"
	lines, cut, err := of.Open().ReadLog()
	_, there := c.tree.Find(name)
	switch {
	case err != nil && there:
		c.unread(name)
	case err == nil:
		c.take(name, &redact.LogRule, c.redactor.Log(lines, cut))
	}
}

// cgroups is the mount point of control groups, version 2.
const cgroups = "sys/fs/cgroup"

// groups adds the limits of the control group and of the groups above it, each of which can refuse. It
// replaces the groups' names.
func (c *collector) groups() {
	own, err := c.read("proc/self/cgroup")
	if err != nil {
		return
	}
	for line := range bytes.Lines(own) {
		name := strings.TrimSuffix(string(line), "\n")
		group, ok := strings.CutPrefix(name, "0::")
		instead, _ := redact.Group(name)
		if !ok {
			continue
		}
		from, to := path.Clean("/"+group), path.Clean("/"+strings.TrimPrefix(instead, "0::"))
		for ; from != "/"; from, to = path.Dir(from), path.Dir(to) {
			for _, file := range []string{"rdma.max", "rdma.current"} {
				c.limit(path.Join(cgroups, from, file), path.Join(cgroups, to, file))
			}
		}
		return
	}
}

// limit adds a file of a control group under another name.
func (c *collector) limit(from, to string) {
	data, err := c.read(from)
	switch {
	case gone(err):
	case err != nil:
		c.unread(to)
	default:
		c.take(to, &redact.GroupRule, redact.GroupRule.Apply(c.redactor, data))
	}
}
