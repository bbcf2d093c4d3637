// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
)

// loader holds what is in the kernel: maps, programs, links.
type loader struct {
	cfg     Config
	symbols *symbols
	machine *machineTable
	types   *btf.Cache // the kernel's, while the tracer opens: they take 20 MiB

	mu    sync.Mutex
	core  *ebpf.Collection   // owns the maps that all share
	more  []*ebpf.Collection // ib_core and ib_uverbs, exporters, iterators
	links []attached
	runs  map[*ebpf.Program]string // what is not seen if the kernel skips one
	hooks []Hook
	ops   []string        // exporter functions by cookie; 0 is none
	have  map[string]bool // groups and functions that are attached, and what is noted once

	skippedEnds uint64 // of threads, when they were looked for
	reclaims    int    // how often they still are to be
	reclaimed   time.Time
}

// attached is a link, with what is not seen if the kernel skips its program.
type attached struct {
	link.Link
	what  string
	probe bool // a kprobe or kretprobe, which the kernel counts for itself
}

// sharedMaps are those of bpf/state.h.
var sharedMaps = []string{"events", "config", "lost", "owners", "scopes", "attaches", "bufs", "mrs", "deregs", "keys", "pids", "inodes", "cgroups"}

func newLoader(cfg Config, syms *symbols) *loader {
	return &loader{cfg: cfg, symbols: syms, ops: []string{""}, have: map[string]bool{}, runs: map[*ebpf.Program]string{}}
}

// trampolines is the kernel's part that CONFIG_BPF_JIT brings, without which no
// program can be at a function's entry or exit (include/linux/bpf.h).
const trampolines = "bpf_trampoline_get"

// functions are the targets that the tables name, with where they are now.
func (l *loader) functions() (map[string]symbol, error) {
	names := map[string]bool{"vmemmap_base": true, trampolines: true}
	for _, table := range [][]hook{coreHooks, rdmaHooks} {
		for _, h := range table {
			names[h.function] = true
		}
	}
	found, err := l.symbols.find(names, !l.cfg.NoExporterHooks)
	if err != nil {
		return nil, refuse("the kernel's symbols ("+l.symbols.path+")", "", "", rootErr(err))
	}
	return found, nil
}

// readings bounds how often the list of symbols is read while modules come.
const readings = 8

// settled reads the list of symbols until a reading adds nothing. The kernel finds
// its place in the list by number, and a module that ends its initialization gives
// symbols up: one that is read meanwhile lacks what then moves to the front of it.
func settled(read func() (map[string]symbol, error)) (map[string]symbol, error) {
	found, err := read()
	for n := 1; err == nil && n < readings; n++ {
		var again map[string]symbol
		if again, err = read(); err != nil {
			break
		}
		before := len(found)
		maps.Copy(found, again)
		if len(found) == before {
			break
		}
	}
	return found, err
}

func rootErr(err error) error {
	var n unix.Errno
	if errors.As(err, &n) {
		return n
	}
	return err
}

// load brings the programs of the core into the kernel and attaches them.
func (l *loader) load(m *machineTable) error {
	l.machine = m
	l.types = btf.NewCache()
	cache := l.types
	kernel, err := cache.Kernel()
	if err != nil {
		return refuse("/sys/kernel/btf/vmlinux", err.Error(), "", errors.ErrUnsupported)
	}
	if l.cfg.Proc == "" {
		_ = l.symbols.use(cache, kernel) // without it the text is read, which tells the same
	}
	found, err := l.functions()
	if err != nil {
		return err
	}
	cs, err := spec("core")
	if err != nil {
		return err
	}
	var wanted []hook
	for _, h := range coreHooks {
		if h.program == "exported" && !l.cfg.Exports {
			continue
		}
		if why := l.absent(h, found, kernel); why != "" {
			if h.always {
				return refuse(h.function, why, "", errors.ErrUnsupported)
			}
			l.note(h, "", why)
			continue
		}
		wanted = append(wanted, h)
	}
	for _, h := range wanted {
		l.have[h.program] = true
	}
	wanted = append(wanted, moduleHook, exitHook)
	if l.cfg.Children {
		wanted = append(wanted, forkHook)
	}
	keep(cs, wanted)
	cs.Maps["events"].MaxEntries = uint32(l.cfg.RingSize)
	if err := cs.Variables["windows"].Set(windowBytes(m.windows())); err != nil {
		return fmt.Errorf("trace: memory map: %w", err)
	}
	l.core, err = ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if _, ok := found[trampolines]; !ok && errors.Is(err, unix.ENOMEM) {
		return refuse("bpf", "the kernel has nothing to put programs at a function's entry and exit with",
			"use a kernel that is built with CONFIG_BPF_JIT", errors.ErrUnsupported)
	}
	if err != nil {
		return explainLoad(err)
	}
	if err := l.configure(found["vmemmap_base"].addr); err != nil {
		return err
	}
	if err := l.attachAll(l.core, wanted, nil); err != nil {
		return err
	}
	if !l.cfg.rdmaLater {
		if err := l.loadRDMA(cache, kernel, found); err != nil {
			return err
		}
	}
	if l.cfg.NoExporterHooks {
		return nil
	}
	return l.loadExporters(cache, kernel, found)
}

// has reports whether a program or a group of them is attached.
func (l *loader) has(name string) bool { return l.have[name] }

// absent says why a function of vmlinux cannot be watched.
func (l *loader) absent(h hook, found map[string]symbol, kernel *btf.Spec) string {
	if sym, ok := found[h.function]; !ok || sym.module != "" {
		return missing(h)
	}
	var fn *btf.Func
	if err := kernel.TypeByName(h.function, &fn); err != nil {
		return "the kernel's type information does not list it: compiled in another shape, or not traceable"
	}
	return ""
}

func missing(h hook) string {
	if h.since != "" {
		return "not in this kernel (" + h.since + ")"
	}
	return "not in this kernel"
}

// keep removes programs that are not wanted from a specification.
func keep(cs *ebpf.CollectionSpec, wanted []hook) {
	names := map[string]bool{}
	for _, h := range wanted {
		names[h.program] = true
	}
	for name := range cs.Programs {
		if !names[name] {
			delete(cs.Programs, name)
		}
	}
}

func (l *loader) note(h hook, module, why string) {
	l.hooks = append(l.hooks, Hook{Function: h.function, Module: module, What: h.what, Absent: why})
}

// configure fills the configuration and filter maps, before anything is
// attached.
func (l *loader) configure(vmemmap uint64) error {
	c := wireConfig{
		Vmemmap:   vmemmap,
		Wake:      uint64(l.cfg.RingSize / 4),
		Walk:      uint32(l.cfg.WalkLimit),
		PageShift: uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	}
	if runtime.GOARCH != "amd64" {
		c.Vmemmap = 0 // elsewhere the array's address is not in a variable
	}
	one := uint8(1)
	pids := l.cfg.PIDs
	if l.cfg.Self {
		pid, err := l.self()
		if err != nil {
			return err
		}
		pids = append(slices.Clone(pids), pid)
	}
	for _, pid := range pids {
		c.Flags |= configPIDs
		err := l.countKey(keysPIDs, uint64(pid))
		if err == nil {
			err = rootErr(l.core.Maps["pids"].Put(uint64(pid), one))
		}
		if err != nil {
			return refuse("process filter", fmt.Sprintf("%d processes", len(pids)), "", err)
		}
	}
	for _, ino := range l.cfg.Inodes {
		c.Flags |= configInodes
		if err := l.core.Maps["inodes"].Put(ino, one); err != nil {
			return refuse("inode filter", fmt.Sprintf("%d inodes", len(l.cfg.Inodes)), "", rootErr(err))
		}
	}
	if l.cfg.Cgroup != "" {
		c.Flags |= configCgroup
		dir, err := os.Open(l.cfg.Cgroup)
		if err != nil {
			return refuse(l.cfg.Cgroup, "the cgroup filter", "name a directory of a cgroup v2 mount", rootErr(err))
		}
		defer dir.Close()
		if err := l.core.Maps["cgroups"].Put(uint32(0), uint32(dir.Fd())); err != nil {
			return refuse(l.cfg.Cgroup, "not a cgroup v2 directory", "name a directory of a cgroup v2 mount", rootErr(err))
		}
	}
	if l.cfg.RDMAOnly {
		c.Flags |= configRDMAOnly
	}
	if l.cfg.Exports {
		c.Flags |= configExports
	}
	return l.setConfig(c)
}

func (l *loader) setConfig(c wireConfig) error {
	if err := l.core.Maps["config"].Put(uint32(0), c.bytes()); err != nil {
		return refuse("configuration", "", "", rootErr(err))
	}
	return nil
}

// attachAll attaches programs in the table's order.
func (l *loader) attachAll(coll *ebpf.Collection, table []hook, modules map[string]string) error {
	for _, h := range table {
		k, err := attach(coll.Programs[h.program], h, 0)
		module := modules[h.function]
		if err != nil {
			if h.always {
				return refuse(h.function, "attaching: "+err.Error(), "", rootErr(err))
			}
			l.note(h, module, "attaching failed: "+err.Error())
			continue
		}
		l.attached(k, coll.Programs[h.program], h)
		l.hooks = append(l.hooks, Hook{Function: h.function, Module: module, How: h.how, What: h.what})
	}
	return nil
}

// attached remembers a link. A program that several functions share counts for
// the first of them. One that only tidies up does not count: see reclaim.
func (l *loader) attached(k link.Link, p *ebpf.Program, h hook) {
	l.links = append(l.links, attached{k, h.what, strings.HasSuffix(h.how, "probe")})
	if l.runs[p] == "" && !h.tidies {
		l.runs[p] = h.what
	}
}

func attach(p *ebpf.Program, h hook, cookie uint64) (link.Link, error) {
	if p == nil {
		return nil, errors.New("the program was not loaded")
	}
	switch h.how {
	case "kprobe":
		return link.Kprobe(h.function, p, nil)
	case "kretprobe":
		return link.Kretprobe(h.function, p, nil)
	}
	opts := link.TracingOptions{Program: p, Cookie: cookie}
	if cookie != 0 { // needs a BPF link, which needs to be told the type
		opts.AttachType = ebpf.AttachTraceFExit
	}
	return link.AttachTracing(opts)
}

// shared are the maps that an object beside the core works on.
func (l *loader) shared(cs *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for _, name := range sharedMaps {
		if m := cs.Maps[name]; m != nil {
			m.MaxEntries = l.core.Maps[name].MaxEntries()
			out[name] = l.core.Maps[name]
		}
	}
	return out
}

// loadRDMA attaches to ib_core and ib_uverbs, if they are loaded and as far as
// it was not done before: by fentry where a module has BTF, else by kprobe.
func (l *loader) loadRDMA(cache *btf.Cache, kernel *btf.Spec, found map[string]symbol) error {
	if l.have["rdma"] {
		return nil
	}
	if _, ok := found["ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR"]; !ok {
		return nil // ib_uverbs is not loaded; it may come
	}
	var types []*btf.Spec
	hasBTF := map[string]*btf.Spec{}
	for _, module := range []string{"ib_uverbs", "ib_core"} {
		if l.cfg.rdmaWithoutBTF {
			break
		}
		if s, err := cache.Module(module); err == nil {
			hasBTF[module] = s
			types = append(types, s)
		}
	}
	var fentry, kprobes []hook
	modules := map[string]string{}
	for _, h := range rdmaHooks {
		sym, ok := found[h.function]
		if !ok {
			if h.how == "fexit" || h.program == "umem_revoked" {
				l.note(h, "", missing(h))
			}
			continue
		}
		modules[h.function] = sym.module
		ms := hasBTF[sym.module]
		if sym.module == "" {
			ms = kernel
		}
		var fn *btf.Func
		switch {
		case ms != nil && ms.TypeByName(h.function, &fn) == nil && h.program != "":
			fentry = append(fentry, h)
		case ms == nil || h.program != "":
			kprobes = append(kprobes, h.asKprobe())
		}
	}
	if err := l.loadGroup("rdma", fentry, modules, cache, kernel, types); err != nil {
		return err
	}
	if err := l.loadGroup("rdma_kprobe", kprobes, modules, cache, kernel, types); err != nil {
		return err
	}
	l.have["rdma"] = true
	return nil
}

func (l *loader) loadGroup(object string, table []hook, modules map[string]string, cache *btf.Cache, kernel *btf.Spec, types []*btf.Spec) error {
	if len(table) == 0 {
		return nil
	}
	cs, err := spec(object)
	if err != nil {
		return err
	}
	keep(cs, table)
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, MapReplacements: l.shared(cs),
		Programs: ebpf.ProgramOptions{KernelTypes: kernel, ExtraRelocationTargets: types},
	})
	if err != nil {
		return explainLoad(err)
	}
	l.more = append(l.more, coll)
	return l.attachAll(coll, table, modules)
}

// exporterOp is an operation of an exporter's, to be attached to.
type exporterOp struct {
	hook   hook
	op     string // of struct dma_buf_ops
	module string
	cookie uint64
}

// newExporterOps picks the exporters' operations that have not been attached to
// before. types has the type information of a module.
func (l *loader) newExporterOps(found map[string]symbol, types func(module string) (*btf.Spec, error)) (list []exporterOp) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		sym := found[name]
		if !maybeExporterOp([]byte(name)) || !sym.code || l.have[name] {
			continue
		}
		h := hook{function: name, how: "fexit", what: whatExporterOps}
		spec, err := types(sym.module)
		if err != nil {
			// Told once a module: by their names alone there may be many.
			if untyped := "types of " + sym.module; !l.have[untyped] {
				l.have[untyped] = true
				l.note(h, sym.module, fmt.Sprintf("whether this and other functions of %s are an exporter's is not known: %v", sym.module, err))
			}
			continue
		}
		var fn *btf.Func
		if spec.TypeByName(name, &fn) != nil {
			continue
		}
		op := opOf(fn)
		if op == "" {
			continue
		}
		l.have[name] = true
		if len(l.ops) > l.cfg.exporterOps {
			l.note(h, sym.module, fmt.Sprintf("%d exporters' operations are watched at most", l.cfg.exporterOps))
			continue
		}
		h.program = fmt.Sprintf("exporter_%s_%d", op, len(l.ops))
		list = append(list, exporterOp{h, op, sym.module, uint64(len(l.ops))})
		l.ops = append(l.ops, name)
	}
	return list
}

// loadExporters attaches to the attach, pin and map operations of exporters
// that have not been attached to before.
func (l *loader) loadExporters(cache *btf.Cache, kernel *btf.Spec, found map[string]symbol) error {
	tmpl, err := spec("exporter")
	if err != nil {
		return err
	}
	cs := tmpl.Copy()
	clear(cs.Programs)
	targets := l.newExporterOps(found, func(module string) (*btf.Spec, error) {
		switch {
		case module == "":
			return kernel, nil
		case l.cfg.rdmaWithoutBTF && strings.HasPrefix(module, "ib_"):
			return nil, btf.ErrNotFound
		}
		return cache.Module(module)
	})
	for _, t := range targets {
		ps := tmpl.Programs["exporter_"+t.op].Copy()
		ps.Name, ps.AttachTo = "exporter_"+t.op, t.hook.function
		cs.Programs[t.hook.program] = ps
	}
	if len(targets) == 0 {
		return nil
	}
	coll, err := ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, MapReplacements: l.shared(cs), Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		// Without these the explanations are coarser, and that is all.
		for _, t := range targets {
			l.note(t.hook, t.module, err.Error())
		}
		return nil
	}
	l.more = append(l.more, coll)
	for _, t := range targets {
		k, err := attach(coll.Programs[t.hook.program], t.hook, t.cookie)
		if err != nil {
			l.note(t.hook, t.module, "attaching failed: "+err.Error())
			continue
		}
		l.attached(k, coll.Programs[t.hook.program], t.hook)
		l.hooks = append(l.hooks, Hook{Function: t.hook.function, Module: t.module, How: "fexit", What: t.hook.what})
	}
	return nil
}

// moduleCame attaches to what a module that was loaded meanwhile brought. It
// reports whether RDMA is attached now.
func (l *loader) moduleCame() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return false, os.ErrClosed
	}
	found, err := settled(func() (map[string]symbol, error) {
		l.symbols.forget()
		return l.functions()
	})
	if err != nil {
		return false, err
	}
	cache := btf.NewCache()
	kernel, err := cache.Kernel()
	if err != nil {
		return false, err
	}
	if err := l.loadRDMA(cache, kernel, found); err != nil {
		return false, err
	}
	if !l.cfg.NoExporterHooks {
		err = l.loadExporters(cache, kernel, found)
	}
	return l.have["rdma"], err
}

// refreshWindows hands the programs a new memory map.
func (l *loader) refreshWindows(m *placement.Machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return os.ErrClosed
	}
	return l.core.Variables["windows"].Set(windowBytes(windowsOf(m)))
}

// opName is the exporter function of a cookie.
func (l *loader) opName(cookie uint16) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(cookie) < len(l.ops) {
		return l.ops[cookie]
	}
	return ""
}

// lost reads the loss counters, by event type.
func (l *loader) lost() (counts [eventTypes]uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return counts, os.ErrClosed
	}
	var raw [8 * eventTypes]byte
	memory, err := l.core.Maps["lost"].Memory()
	if err != nil {
		return counts, err
	}
	if _, err := memory.ReadAt(raw[:], 0); err != nil {
		return counts, err
	}
	for t := range counts {
		counts[t] = binary.NativeEndian.Uint64(raw[8*t:])
	}
	return counts, nil
}

// missed adds up how often the kernel skipped a program, by what was not seen
// for it: it was running already on the same CPU, or, for a kretprobe, its
// function in too many threads at once (counted by the kernel since 6.6; before,
// the next call of the thread finds what the skipped exit left behind, see lost).
func (l *loader) missed() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]uint64{}
	for p, what := range l.runs {
		if s, err := p.Stats(); err == nil && s.RecursionMisses > 0 {
			counts[what] += s.RecursionMisses
		}
	}
	for _, k := range l.links {
		if !k.probe {
			continue
		}
		if info, err := k.Info(); err == nil && info.PerfEvent() != nil {
			if probe := info.PerfEvent().Kprobe(); probe != nil && probe.Missed > 0 {
				counts[k.what] += probe.Missed
			}
		}
	}
	return counts
}

// close detaches and frees everything. The programs are told to stop first;
// detaching waits for the kernel's grace periods, so it is done side by side.
func (l *loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core != nil {
		if m := l.core.Maps["config"]; m != nil {
			c := wireConfig{Flags: configStopped}
			_ = m.Put(uint32(0), c.bytes())
		}
	}
	var wg sync.WaitGroup
	for _, k := range l.links {
		wg.Go(func() { _ = k.Close() })
	}
	wg.Wait()
	for _, c := range l.more {
		c.Close()
	}
	if l.core != nil {
		l.core.Close()
	}
	l.symbols.close()
	l.links, l.runs, l.more, l.core = nil, nil, nil, nil
}

// explainLoad turns what the kernel answered into words.
func explainLoad(err error) error {
	var v *ebpf.VerifierError
	switch {
	case errors.As(err, &v):
		return refuse("the kernel's verifier", fmt.Sprintf("%+v", tail(v)), "report this, with the kernel's version", rootErr(err))
	case errors.Is(err, unix.EPERM):
		// Which program was the first to be refused says nothing, and the library's
		// advice is for its callers.
		return refuse("bpf", "the kernel refused bpf(2), though this process has the capabilities",
			"look for what forbids bpf(2): a container's or service's seccomp filter, lockdown=confidentiality, a security module", unix.EPERM)
	case errors.Is(err, unix.ENOMEM):
		return refuse("bpf", err.Error(), "allow more memory: a memory cgroup counts the maps", unix.ENOMEM)
	}
	return refuse("bpf", err.Error(), "", rootErr(err))
}

// tail keeps the end of a verifier's log, where the reason is.
func tail(v *ebpf.VerifierError) string {
	lines := v.Log[max(0, len(v.Log)-12):]
	return strings.Join(lines, "\n")
}
