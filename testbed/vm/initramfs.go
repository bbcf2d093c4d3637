// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/initrd"
	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/module"
	"github.com/gpurdma/gpurdma/testbed/wire"
)

// hostModules are what init needs to reach the host: the serial ports, the
// shared file systems and the overlay over them.
var hostModules = []string{"virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"}

// ownModule is a module built from kernel/ for this kernel.
type ownModule struct {
	name string
	file string
	data []byte
}

// ErrNoPatched says that a patched module was asked for and is not built.
var ErrNoPatched = errors.New("patched module not built")

// ownModules reads what was built for the kernel, and lies in a directory. A module built for another
// version of the kernel is an error: it would not load.
func ownModules(dir string, k kernel.Kernel) (map[string]ownModule, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return nil, err
	}
	own := map[string]ownModule{}
	for _, f := range files {
		data, err := module.Read(f)
		if err != nil {
			return nil, err
		}
		rel, err := module.Release(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if rel != k.Release {
			return nil, fmt.Errorf("%s was built for kernel %s, the cached kernel is %s: run `make kernel KERNEL=%s`", f, rel, k.Release, k.Series)
		}
		own[module.Name(f)] = ownModule{name: module.Name(f), file: f, data: data}
	}
	return own, nil
}

// moduleSpec is an entry of a machine's module list.
type moduleSpec struct {
	name, params string
	optional     bool
}

func parseModule(entry string) moduleSpec {
	name, params, _ := strings.Cut(strings.TrimSpace(entry), " ")
	s := moduleSpec{params: strings.TrimSpace(params)}
	s.name, s.optional = strings.CutPrefix(name, "?")
	return s
}

// plan lists the modules to load for a machine's list, in order, our own in
// the place of the stock ones.
func plan(tree *module.Tree, entries []string, own map[string]ownModule) ([]planned, error) {
	var out []planned
	index := map[string]int{}
	add := func(name, params string) {
		if i, ok := index[name]; ok {
			if params != "" {
				out[i].params = params
			}
			return
		}
		index[name] = len(out)
		file := tree.File(name)
		if o, ok := own[name]; ok {
			file = o.file
		}
		out = append(out, planned{name, params, file})
	}
	for _, e := range entries {
		s := parseModule(e)
		name := module.Name(s.name)
		var needs []string
		if o, ok := own[name]; ok && !tree.Has(name) {
			// Not a module of Debian's, so it is not in modules.dep.
			deps, err := module.Depends(o.data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", o.file, err)
			}
			if needs, err = tree.Order(deps...); err != nil {
				return nil, fmt.Errorf("%s: %w", o.file, err)
			}
			needs = append(needs, name)
		} else {
			if !tree.Has(name) && s.optional {
				continue
			}
			var err error
			if needs, err = tree.Order(name); err != nil {
				return nil, err
			}
		}
		for _, n := range needs {
			if n == name {
				add(n, s.params)
			} else {
				add(n, "")
			}
		}
	}
	return out, nil
}

// planned is one module to load.
type planned struct{ name, params, file string }

// initramfs returns the image for these modules, built when no cached one has
// the same contents.
func initramfs(t layout.Tree, series string, early, late []planned) (string, error) {
	init, err := os.ReadFile(initProgram(t))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(init)
	for i, list := range [][]planned{early, late} {
		for _, m := range list {
			fi, err := os.Stat(m.file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%d %s %q %s %d %d\n", i, m.name, m.params, m.file, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	dir := filepath.Join(t.Cache(), series)
	final := filepath.Join(dir, "initramfs-"+hex.EncodeToString(h.Sum(nil))[:16]+".cpio")
	if _, err := os.Stat(final); err == nil {
		now := nowFunc()
		os.Chtimes(final, now, now) // so that the cleaning below spares it
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "stage-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w, init, early, late); err != nil {
		return "", err
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	if err := os.Rename(f.Name(), final); err != nil {
		return "", err
	}
	prune(dir, "initramfs-*.cpio", keepImages)
	return final, nil
}

// initProgram is the file of the guest's init: this program, which is not looked for by
// its path, as a new build may lie there by now, or the build of it for the guest's
// processor.
func initProgram(t layout.Tree) string {
	return cmp.Or(t.Init(), "/proc/self/exe")
}

// static reports a program that would want a loader, which the initramfs has not.
func static(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("testbed is also the guest's init and has to be linked statically: run `make testbed`, or build it with CGO_ENABLED=0")
		}
	}
	return nil
}

func write(w io.Writer, init []byte, early, late []planned) error {
	read := func(list []planned) ([]initrd.Module, error) {
		var ms []initrd.Module
		for _, p := range list {
			data, err := module.Read(p.file)
			if err != nil {
				return nil, err
			}
			ms = append(ms, initrd.Module{Name: p.name, Params: p.params, Data: data})
		}
		return ms, nil
	}
	e, err := read(early)
	if err != nil {
		return err
	}
	l, err := read(late)
	if err != nil {
		return err
	}
	return initrd.Write(w, init, e, l)
}

// replacements says which of our modules hide stock ones, and gives modprobe
// the rest.
func replacements(tree *module.Tree, moduleDir string, own map[string]ownModule) (map[string]string, string, error) {
	hide := map[string]string{}
	var conf strings.Builder
	for name, o := range own {
		if file := tree.File(name); file != "" {
			rel, err := filepath.Rel(moduleDir, file)
			if err != nil {
				return nil, "", err
			}
			hide[rel] = o.file
			continue
		}
		deps, err := module.Depends(o.data)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", o.file, err)
		}
		fmt.Fprintf(&conf, "install %s ", name)
		for _, d := range deps {
			fmt.Fprintf(&conf, "modprobe %s && ", d)
		}
		fmt.Fprintf(&conf, "insmod %s $CMDLINE_OPTS\nremove %s rmmod %s\n", o.file, name, name)
	}
	return hide, conf.String(), nil
}

// setup is the message for a node's init.
func (o Options) setup(tree *module.Tree, own map[string]ownModule, n int) (*wire.Setup, error) {
	node := o.Machine.Nodes[n]
	hide, conf, err := replacements(tree, o.Kernel.ModuleDir(), own)
	if err != nil {
		return nil, err
	}
	return &wire.Setup{
		Hostname:   "gpurdma-" + node.Name,
		ModuleDir:  o.Kernel.ModuleDir(),
		Replace:    hide,
		Modprobe:   conf,
		Root:       o.Tree.Userland(),
		Expose:     o.exposed(),
		Interfaces: o.Machine.Guest(node),
		RDMA:       node.RDMA,
		PCI:        node.PCIPaths(),
	}, nil
}
