// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
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
	quit    chan struct{}

	// What is below changes with both locks. work is held while programs are loaded
	// and attached, which takes a while; mu, which the reader waits for, is not.
	work  sync.Mutex // before mu
	mu    sync.Mutex
	core  *ebpf.Collection   // owns the maps that all share
	more  []*ebpf.Collection // ib_core and ib_uverbs, exporters, iterators
	links []attached
	runs  map[*ebpf.Program]string // what is not seen if the kernel skips one
	hooks []Hook
	ops   []string          // exporter functions by cookie; 0 is none
	have  map[string]bool   // groups and functions that are attached, and what is noted once
	was   map[string]uint64 // skipped runs of what is not attached any more
	rdma  rdmaModules       // that are attached to
	probe *ebpf.Collection  // by kprobes
	// Why the keys of MRs and the names of their devices are not seen, "" if they are.
	noKeys, noDevices string

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
	return &loader{
		cfg: cfg, symbols: syms, quit: make(chan struct{}), ops: []string{""}, have: map[string]bool{},
		runs: map[*ebpf.Program]string{}, was: map[string]uint64{},
	}
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
	if l.cfg.kernelTypes != nil {
		kernel = l.cfg.kernelTypes
	}
	if l.cfg.Proc == "" {
		_ = l.symbols.use(cache, kernel) // without it the text is read, which tells the same
	}
	rdma := l.rdmaNow()
	found, err := l.functions()
	if err != nil {
		return err
	}
	if l.cfg.meanwhile != nil {
		l.cfg.meanwhile()
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
	types := func() (*btf.Cache, *btf.Spec, error) { return cache, kernel, nil }
	if !l.cfg.rdmaLater {
		if _, ok := found[uverbsIsThere]; !ok {
			// It may have come before there was anybody to tell of it.
			rdma = l.rdmaNow()
			if found, err = settled(l.functions); err != nil {
				return err
			}
		}
		if err := l.loadRDMA(types, found, rdma); err != nil {
			return err
		}
	}
	if l.cfg.NoExporterHooks {
		return nil
	}
	return l.loadExporters(types, found, allModules)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, Hook{Function: h.function, Module: module, What: h.what, Absent: why})
}

// configure fills the configuration and filter maps, before anything is
// attached.
func (l *loader) configure(vmemmap uint64) error {
	c := wireConfig{
		Wake:      uint64(l.cfg.RingSize / 4),
		Walk:      uint32(l.cfg.WalkLimit),
		PageShift: uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	}
	switch runtime.GOARCH {
	case "amd64":
		c.Vmemmap = vmemmap
	case "arm64": // its address is in no variable
		c.Pages = arm64Pages(kcoreFile, uint64(os.Getpagesize()))
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
		l.attached(k, coll.Programs[h.program], h, module)
		l.have[h.program] = true
	}
	return nil
}

// attached remembers a link. A program that several functions share counts for
// the first of them. One that only tidies up does not count: see reclaim.
func (l *loader) attached(k link.Link, p *ebpf.Program, h hook, module string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links = append(l.links, attached{k, h.what, h.probe()})
	l.hooks = append(l.hooks, Hook{Function: h.function, Module: module, How: h.how, What: h.what})
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

// close detaches and frees everything. The programs are told to stop first;
// detaching waits for the kernel's grace periods, so it is done side by side.
func (l *loader) close() {
	l.work.Lock()
	defer l.work.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core != nil {
		if m := l.core.Maps["config"]; m != nil {
			c := wireConfig{Flags: configStopped}
			_ = m.Put(uint32(0), c.bytes())
		}
	}
	closeAll(l.links)
	for _, c := range l.more {
		c.Close()
	}
	if l.core != nil {
		l.core.Close()
	}
	l.symbols.close()
	l.links, l.runs, l.more, l.core, l.probe = nil, nil, nil, nil, nil
}

func closeAll(links []attached) {
	var wg sync.WaitGroup
	for _, k := range links {
		wg.Go(func() { _ = k.Close() })
	}
	wg.Wait()
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
