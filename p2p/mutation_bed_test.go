// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// bed is a machine on disk whose files a test changes and puts back.
type bed struct {
	t         testing.TB
	s         *subject
	root      string
	stash     string
	changed   []string          // paths below root, in the order of the changes
	functions map[string]string // the line of each function in [testenv.Tree.Functions], by address
	spaces    map[string]string // configuration spaces by the line that makes them
}

func newBed(t testing.TB, s *subject) *bed {
	tree := s.tree(t)
	b := &bed{t: t, s: s, root: tree.Write(t), stash: testenv.TreeDir(t), functions: map[string]string{}, spaces: map[string]string{}}
	for line := range strings.Lines(tree.Functions) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.functions[path.Base(fields[0])] = strings.Join(fields, " ")
		}
	}
	return b
}

// judge judges the pair of the bed's subject anew. It is false where the machine no longer lists
// the GPU or the NIC.
func (b *bed) judge() (p2p.Pair, bool) {
	m := machine.Open(b.root)
	gpus, _ := drivers.GPUs(m)
	nics, _ := drivers.NICs(m)
	g := slices.IndexFunc(gpus, func(g drivers.GPU) bool { return g.Name == b.s.gpu })
	n := slices.IndexFunc(nics, func(n drivers.NIC) bool { return n.Name == b.s.nic })
	if g < 0 || n < 0 {
		return p2p.Pair{}, false
	}
	return p2p.Judge(m, gpus[g], nics[n]), true
}

// take moves what is at a path to the stash, the first time that the path is changed. Later
// changes of the same path replace each other.
func (b *bed) take(name string) string {
	b.t.Helper()
	at := filepath.Join(b.root, name)
	if i := slices.Index(b.changed, name); i >= 0 {
		b.must(os.RemoveAll(at))
		return at
	}
	if err := os.Rename(at, b.stashed(len(b.changed))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	b.changed = append(b.changed, name)
	b.must(os.MkdirAll(filepath.Dir(at), 0o755))
	return at
}

func (b *bed) stashed(i int) string { return filepath.Join(b.stash, strconv.Itoa(i)) }

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// undo puts all back.
func (b *bed) undo() {
	b.t.Helper()
	for i, name := range slices.Backward(b.changed) {
		at := filepath.Join(b.root, name)
		b.must(os.RemoveAll(at))
		if err := os.Rename(b.stashed(i), at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.t.Fatal(err)
		}
	}
	b.changed = nil
}

// read is the present text of a file, "" of one that is not there.
func (b *bed) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.root, name))
	return string(text)
}

func (b *bed) has(name string) bool {
	_, err := os.Lstat(filepath.Join(b.root, name))
	return err == nil
}

// put writes a file.
func (b *bed) put(name, text string) {
	b.t.Helper()
	b.must(os.WriteFile(b.take(name), []byte(text), 0o600))
}

// drop takes a file, a link or a directory away.
func (b *bed) drop(name string) { b.take(name) }

// deny makes a file one that was not readable when the copy was taken: a link to itself.
func (b *bed) deny(name string) {
	b.t.Helper()
	at := b.take(name)
	b.must(os.Symlink(filepath.Base(at), at))
}

// link makes a link to a directory below root, which it makes.
func (b *bed) link(name, target string) {
	b.t.Helper()
	at := b.take(name)
	testenv.Link(b.t, filepath.Join(b.root, target), at)
}

// dir is a function's directory.
func (b *bed) dir(addr string) string {
	b.t.Helper()
	line, ok := b.functions[addr]
	if !ok {
		b.t.Fatalf("%s has no function %s", b.s.name, addr)
	}
	dir, _, _ := strings.Cut(line, " ")
	return "sys/devices/" + dir
}

// space gives a function the configuration space of its line with more attributes.
func (b *bed) space(addr, attributes string) {
	b.t.Helper()
	line := b.functions[addr] + " " + attributes
	text, ok := b.spaces[line]
	if !ok {
		dir, attrs, _ := strings.Cut(line, " ")
		keep := slices.DeleteFunc(strings.Fields(attrs), func(a string) bool {
			name, _, _ := strings.Cut(a, "=")
			return !slices.Contains([]string{"acs", "ats", "devctl", "devctl2", "type", "config", "rebar", "vendor", "device"}, name)
		})
		one := testenv.Tree{Release: "-", Config: "-", CPU: "-", Functions: dir + " " + strings.Join(keep, " ")}
		data, err := os.ReadFile(filepath.Join(one.Write(b.t), "sys/devices", dir, "config"))
		b.must(err)
		text = string(data)
		b.spaces[line] = text
	}
	b.put(b.dir(addr)+"/config", text)
}

// fill overwrites a function's configuration space from a byte on.
func (b *bed) fill(addr string, from int, with byte) {
	b.t.Helper()
	config := []byte(b.read(b.dir(addr) + "/config"))
	for i := from; i < len(config); i++ {
		config[i] = with
	}
	b.put(b.dir(addr)+"/config", string(config))
}

// identify gives a function other ids, in its files and in its configuration space; "" leaves one as it is.
func (b *bed) identify(addr, vendor, device string) {
	b.t.Helper()
	config := []byte(b.read(b.dir(addr) + "/config"))
	for i, id := range []string{vendor, device} {
		if n, err := strconv.ParseUint(id, 0, 16); err == nil && len(config) >= 4 {
			binary.LittleEndian.PutUint16(config[2*i:], uint16(n))
		}
		if id != "" {
			b.put(b.dir(addr)+"/"+[]string{"vendor", "device"}[i], id+"\n")
		}
	}
	b.put(b.dir(addr)+"/config", string(config))
}

// silence makes a function answer each read of its configuration with ones.
func (b *bed) silence(addr string) {
	b.t.Helper()
	b.put(b.dir(addr)+"/config", strings.Repeat("\xff", 4096))
}

// driver binds another driver to a function, or none.
func (b *bed) driver(addr, name string) {
	b.t.Helper()
	if name == "" {
		b.drop(b.dir(addr) + "/driver")
		b.drop("proc/driver/nvidia/gpus/" + addr)
		return
	}
	b.link(b.dir(addr)+"/driver", "sys/bus/pci/drivers/"+name)
}

// group is the file with the type of a function's IOMMU domain. A function without a group gets
// one of its own.
func (b *bed) group(addr string) string {
	b.t.Helper()
	link := b.dir(addr) + "/iommu_group"
	target, err := os.Readlink(filepath.Join(b.root, link))
	if err != nil {
		target = "sys/kernel/iommu_groups/" + map[bool]string{true: "900", false: "901"}[addr == b.s.gpu]
		b.must(os.MkdirAll(b.take(target), 0o755)) // an undo takes all of it away
		b.link(link, target)
		b.must(os.MkdirAll(filepath.Join(b.root, target, "devices", addr), 0o755))
	}
	return "sys/kernel/iommu_groups/" + path.Base(target) + "/type"
}

// release makes the kernel another one, with the same configuration.
func (b *bed) release(name string) {
	b.t.Helper()
	was, config := b.config()
	text := b.read(config)
	b.put("proc/sys/kernel/osrelease", name+"\n")
	b.put(strings.ReplaceAll(config, was, name), text)
}

// config is the release, and the file with the kernel's configuration.
func (b *bed) config() (release, file string) {
	b.t.Helper()
	release = strings.TrimSpace(b.read("proc/sys/kernel/osrelease"))
	for _, file := range []string{"boot/config-" + release, "lib/modules/" + release + "/config", "proc/config.gz"} {
		if b.has(file) {
			return release, file
		}
	}
	b.t.Fatalf("%s has no configuration of its kernel", b.s.name)
	return "", ""
}

// option sets an option of the kernel's configuration: y, m or n.
func (b *bed) option(name, value string) {
	b.t.Helper()
	_, file := b.config()
	var lines []string
	for line := range strings.Lines(b.read(file)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, name+"=") && line != "# "+name+" is not set" {
			lines = append(lines, line)
		}
	}
	line := name + "=" + value
	if value == "n" {
		line = "# " + name + " is not set"
	}
	b.put(file, strings.Join(append(lines, line), "\n")+"\n")
}

// log adds lines to the kernel's log.
func (b *bed) log(lines ...string) {
	b.t.Helper()
	text := b.read("dev/kmsg")
	for i, line := range lines {
		text += fmt.Sprintf("3,%d,%d,-;%s\n", 900+i, 9_000_000+i, line)
	}
	b.put("dev/kmsg", text)
}

// uverbs is the directory of the NIC's uverbs device.
func (b *bed) uverbs() string {
	b.t.Helper()
	const class = "sys/class/infiniband_verbs"
	entries, err := os.ReadDir(filepath.Join(b.root, class))
	b.must(err)
	for _, e := range entries {
		if strings.TrimSpace(b.read(path.Join(class, e.Name(), "ibdev"))) == b.s.nic {
			return path.Join(class, e.Name())
		}
	}
	b.t.Fatalf("%s: no uverbs device is of %s", b.s.name, b.s.nic)
	return ""
}

// window is the first address of the GPU's largest memory region, and the one behind it.
func (b *bed) window() (start, end uint64) {
	b.t.Helper()
	for line := range strings.Lines(b.read(b.dir(b.s.gpu) + "/resource")) {
		f := strings.Fields(line)
		first, err1 := strconv.ParseUint(f[0], 0, 64)
		last, err2 := strconv.ParseUint(f[1], 0, 64)
		b.must(errors.Join(err1, err2))
		if last-first > end-start {
			start, end = first, last+1
		}
	}
	if end == 0 {
		b.t.Fatalf("%s: %s has no window", b.s.name, b.s.gpu)
	}
	return start, end
}
