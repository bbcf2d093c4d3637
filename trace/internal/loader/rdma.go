// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"os"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// uverbsIsThere is a function that ib_uverbs has on every kernel that can be traced.
const uverbsIsThere = "ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR"

// rdmaModules distinguishes one loading of ib_core and ib_uverbs from the next. It has the inodes
// of their directories in sysfs, 0 for a module that is not loaded.
type rdmaModules [2]uint64

func (l *Loader) rdmaNow() (m rdmaModules) {
	for i, name := range []string{"ib_core", "ib_uverbs"} {
		if info, err := os.Stat(sysfs.New(l.cfg.Sys).Path("module/" + name)); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				m[i] = st.Ino
			}
		}
	}
	return m
}

// RDMACurrent reports whether programs are attached to the RDMA modules that are loaded now.
func (l *Loader) RDMACurrent() bool {
	now := l.rdmaNow()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.have["rdma"] && l.rdma == now
}

// loadRDMA attaches to those functions of ib_core and ib_uverbs to which no program is attached
// yet, if the modules are loaded: by fentry where a module has BTF, else by kprobe. now are the
// modules as they were before the symbols in found were read.
func (l *Loader) loadRDMA(types typesOf, found map[string]symbols.Symbol, now rdmaModules) error {
	if l.have["rdma"] {
		return nil
	}
	if _, ok := found[uverbsIsThere]; !ok {
		return nil // ib_uverbs is not loaded; it may come
	}
	cache, kernel, err := types()
	if err != nil {
		return err
	}
	var targets []*btf.Spec
	hasBTF := map[string]*btf.Spec{}
	for _, module := range []string{"ib_uverbs", "ib_core"} {
		if l.cfg.Tests.RDMAWithoutBTF {
			break
		}
		if s, err := cache.Module(module); err == nil {
			hasBTF[module] = s
			targets = append(targets, s)
		}
	}
	known := append(targets[:len(targets):len(targets)], kernel)
	noKeys := unknownType(known, "ib_mr", "rdma_restrack_entry")
	l.mu.Lock()
	l.noKeys, l.noDevices = noKeys, unknownType(known, "ib_device")
	l.mu.Unlock()
	var fentry, kprobes []hook
	modules := map[string]string{}
	for _, h := range rdmaHooks {
		if l.have[byType(h)] {
			continue // it was not reloaded with the others
		}
		sym, ok := found[h.function]
		if !ok {
			if h.how == "fexit" || h.program == "umem_revoked" {
				l.note(h, "", missing(h))
			}
			continue
		}
		if h.function == Restrack && noKeys != "" {
			if h.how == "fexit" {
				l.note(h, sym.Module, noKeys)
			}
			continue
		}
		modules[h.function] = sym.Module
		ms := hasBTF[sym.Module]
		if sym.Module == "" {
			ms = kernel
		}
		var fn *btf.Func
		switch {
		case ms != nil && ms.TypeByName(h.function, &fn) == nil && h.program != "":
			fentry = append(fentry, h)
		case ms == nil && h.kprobe == "":
			if h.how == "fexit" {
				l.note(h, sym.Module, "it is watched by its types only, and "+sym.Module+" has none")
			}
		case ms == nil || h.program != "":
			kprobes = append(kprobes, h.asKprobe())
		}
	}
	kernel = withoutOlder(kernel, targets)
	if _, err := l.loadGroup("rdma", fentry, modules, cache, kernel, targets); err != nil {
		return err
	}
	for _, h := range fentry {
		l.notes(byType(h))
	}
	probe, err := l.loadGroup("rdma_kprobe", kprobes, modules, cache, kernel, targets)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.have["rdma"], l.rdma, l.probe = true, now, probe
	return nil
}

// rdmaTypes are the structures of the RDMA core that the programs read.
var rdmaTypes = []string{
	"ib_device", "ib_device_ops", "ib_pd", "ib_mr", "rdma_restrack_entry", "ib_uverbs_device", "ib_uverbs_file",
	"ib_uobject", "uverbs_attr", "uverbs_attr_bundle", "uverbs_ptr_attr", "uverbs_obj_attr",
}

// withoutOlder hides the kernel's structures that the RDMA modules define, too. Modules that do not
// come with the kernel, such as a vendor's, may define them differently, and their version is in use.
func withoutOlder(kernel *btf.Spec, modules []*btf.Spec) *btf.Spec {
	var own *btf.Spec
	for _, name := range rdmaTypes {
		var s *btf.Struct
		if !slices.ContainsFunc(modules, func(m *btf.Spec) bool { return m.TypeByName(name, &s) == nil }) {
			continue
		}
		if _, err := kernel.AnyTypesByName(name); err != nil {
			continue
		}
		if own == nil {
			own = kernel.Copy() // the cache returns kernel to others, too
		}
		types, err := own.AnyTypesByName(name)
		if err != nil {
			continue
		}
		for _, t := range types {
			if s, ok := t.(*btf.Struct); ok {
				s.Name = "kernel's " + name
			}
		}
	}
	if own == nil {
		return kernel
	}
	return own
}

// unknownType names the first of some structures that none of the types has, ""
// if they are all known.
func unknownType(types []*btf.Spec, names ...string) string {
	for _, name := range names {
		var s *btf.Struct
		if !slices.ContainsFunc(types, func(t *btf.Spec) bool { return t.TypeByName(name, &s) == nil }) {
			return "neither the kernel nor ib_core and ib_uverbs have type information of struct " + name
		}
	}
	return ""
}

// Hides says why no registration can be found by a key, "" if one can.
func (l *Loader) Hides(k placement.Key) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case (k.LKey != 0 || k.RKey != 0) && l.noKeys != "":
		return l.noKeys + ", so keys are not seen: name the dma-buf's inode alone"
	case k.Device != "" && l.noDevices != "":
		return l.noDevices + ", so the names of devices are not seen: ask without one"
	}
	return ""
}

// byType is the name in Loader.have of a hook that is attached by fentry or fexit.
func byType(h hook) string { return h.how + " " + h.function }

// dropProbes detaches the kprobes of RDMA modules that were unloaded, and perhaps loaded again. A
// kprobe does not keep its module loaded, and does nothing any more once the module is
// unloaded. An fentry or fexit program keeps its module loaded.
func (l *Loader) dropProbes(now rdmaModules) {
	if !l.have["rdma"] || l.rdma == now || l.probe == nil {
		return
	}
	var gone []attached
	l.mu.Lock()
	l.links = slices.DeleteFunc(l.links, func(k attached) bool {
		if k.probe {
			gone = append(gone, k)
		}
		return k.probe
	})
	programs := map[*ebpf.Program]string{}
	for _, p := range l.probe.Programs {
		if what, ok := l.runs[p]; ok {
			programs[p] = what
			delete(l.runs, p)
		}
	}
	addMissed(l.was, programs, gone)
	ours := map[string]bool{}
	for _, h := range rdmaHooks {
		ours[h.function] = ours[h.function] || !l.have[byType(h)]
	}
	l.hooks = slices.DeleteFunc(l.hooks, func(h Hook) bool { return ours[h.Function] && h.How != "fentry" && h.How != "fexit" })
	l.more = slices.DeleteFunc(l.more, func(c *ebpf.Collection) bool { return c == l.probe })
	dead := l.probe
	l.have["rdma"], l.probe = false, nil
	l.mu.Unlock()
	closeAll(gone)
	dead.Close()
}

func (l *Loader) loadGroup(object string, table []hook, modules map[string]string, cache *btf.Cache, kernel *btf.Spec, types []*btf.Spec) (*ebpf.Collection, error) {
	if len(table) == 0 {
		return nil, nil
	}
	cs, err := objects.Spec(object)
	if err != nil {
		return nil, err
	}
	objects.Keep(cs, programs(table)...)
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, MapReplacements: l.shared(cs),
		Programs: ebpf.ProgramOptions{KernelTypes: kernel, ExtraRelocationTargets: types},
	})
	if err != nil {
		return nil, fault.Load(err)
	}
	l.owns(coll)
	return coll, l.attachAll(coll, table, modules)
}

// owns has a collection closed at the end.
func (l *Loader) owns(coll *ebpf.Collection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more = append(l.more, coll)
}
