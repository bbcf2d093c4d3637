// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/redact"
)

// Snapshot has the files of a machine that may be given to others.
type Snapshot struct {
	tree     *files.Tree // the names are the machine's, the contents those of the archive
	redactor *redact.Redactor
	rules    map[string]*redact.Rule // by the name in the archive; nil unless they are asked for
	most     int                     // files
}

// Option changes what Take does.
type Option func(*Snapshot)

// WithRules keeps the rule by which each file was taken, for [Snapshot.Rule].
func WithRules(s *Snapshot) { s.rules = map[string]*redact.Rule{} }

// Take gathers the files of a machine. It fails for a machine with more files than an archive can have.
func Take(of machine.Source, options ...Option) (*Snapshot, error) {
	s := &Snapshot{tree: files.NewTree(), redactor: redact.New(), most: EntryLimit}
	for _, option := range options {
		option(s)
	}
	root := of.Root
	if root == "" {
		root = "/"
	}
	c := &collector{Snapshot: s, root: root}
	for _, dir := range roots {
		c.add(dir, nil)
	}
	c.functions()
	for _, item := range redact.Taken {
		c.glob("", strings.Split(item.Pattern, "/"), item.Rule)
	}
	c.log(of)
	c.groups()
	if err := fits(s.tree, s.most); err != nil {
		return nil, fmt.Errorf("this machine has more files that checks read than a snapshot can have: %d files and %d MiB at most", s.most, totalLimit>>20)
	}
	return s, nil
}

// Rule is the rule by which a file was taken, named as in [Snapshot.All]; nil for directories and links, and without [WithRules].
func (s *Snapshot) Rule(name string) *redact.Rule { return s.rules[name] }

// Replaced has the texts of the machine that the snapshot has others for.
func (s *Snapshot) Replaced() map[string]string { return s.redactor.Replaced() }

// Len is the number of files, links and directories.
func (s *Snapshot) Len() int {
	n := 0
	for range s.ofMachine() {
		n++
	}
	return n
}

// Unread are the names on the machine of the files that could not be read.
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

// log adds the kernel's log. On this machine it may come from elsewhere than /dev/kmsg.
func (c *collector) log(of machine.Source) {
	const name = "dev/kmsg"
	lines, cut, err := of.Open().ReadLog()
	_, there := c.tree.Find(name)
	switch {
	case err != nil && there:
		c.put(name, files.File{Link: path.Base(name)})
	case err == nil:
		c.put(name, files.File{Data: c.redactor.Log(lines, cut)})
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
		c.put(to, files.File{Link: path.Base(to)})
	default:
		c.put(to, files.File{Data: redact.GroupLimit.Apply(c.redactor, data)})
	}
}
