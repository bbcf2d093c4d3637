// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/fault"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
	"github.com/gpurdma/gpurdma/trace/internal/objects"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// Loader holds what is in the kernel: maps, programs, links.
type Loader struct {
	cfg     Config
	symbols *symbols.Table
	machine *machine.Table
	types   *btf.Cache // the kernel's, while the tracer opens: they take 20 MiB
	quit    chan struct{}

	// The fields from core to noDevices change only with both locks held. work is held while programs are
	// loaded and attached, which takes a while. mu, which the reader waits for, is not.
	work  sync.Mutex // before mu
	mu    sync.Mutex
	core  *ebpf.Collection   // owns the maps that all share
	more  []*ebpf.Collection // ib_core and ib_uverbs, exporters, iterators
	links []attached
	runs  map[*ebpf.Program]string // the events that are not seen if the kernel skips one
	hooks []Hook
	ops   []string          // exporter functions by cookie; 0 is none
	have  map[string]bool   // groups and functions that are attached, and reasons that are noted once
	was   map[string]uint64 // skipped runs of programs that are not attached any more
	rdma  rdmaModules       // the RDMA modules that programs are attached to
	probe *ebpf.Collection  // the programs that are attached to them by kprobes
	// Why the keys of MRs and the names of their devices are not seen, "" if they are.
	noKeys, noDevices string

	// These change with mu held: see Reclaim.
	skippedEnds uint64 // skipped runs of the program for the end of threads
	reclaims    int    // how often to look for threads that ended
	reclaimed   time.Time
}

// attached is a link, with the events that are not seen if the kernel skips its program.
type attached struct {
	link.Link
	what  string
	probe bool // a kprobe or kretprobe, whose skipped runs the kernel counts apart
}

// SharedMaps are those of bpf/state.h.
var SharedMaps = []string{"events", "config", "lost", "owners", "scopes", "attaches", "bufs", "mrs", "deregs", "keys", "pids", "inodes", "cgroups"}

// New returns a loader that has loaded nothing yet. It closes syms.
func New(cfg Config, syms *symbols.Table) *Loader {
	return &Loader{
		cfg: cfg, symbols: syms, quit: make(chan struct{}), ops: []string{""}, have: map[string]bool{},
		runs: map[*ebpf.Program]string{}, was: map[string]uint64{},
	}
}

// trampolines is a function that the kernel has with CONFIG_BPF_JIT only, without which no
// program can be attached to a function's entry or exit (include/linux/bpf.h).
const trampolines = "bpf_trampoline_get"

// functions finds the functions that the tables name among the kernel's symbols.
func (l *Loader) functions() (map[string]symbols.Symbol, error) {
	names := map[string]bool{"vmemmap_base": true, trampolines: true}
	for _, table := range [][]hook{coreHooks, rdmaHooks} {
		for _, h := range table {
			names[h.function] = true
		}
	}
	var others symbols.Others
	if !l.cfg.NoExporterHooks {
		others = ExporterOps
	}
	found, err := l.symbols.Find(names, others)
	if err != nil {
		return nil, fault.New("the kernel's symbols ("+l.symbols.Path()+")", "", "", fault.Errno(err))
	}
	return found, nil
}

// Load brings the programs of the core into the kernel and attaches them.
func (l *Loader) Load(m *machine.Table) error {
	l.machine = m
	l.types = btf.NewCache()
	cache := l.types
	kernel, err := cache.Kernel()
	if err != nil {
		return fault.New("/sys/kernel/btf/vmlinux", err.Error(), "", errors.ErrUnsupported)
	}
	if l.cfg.Tests.KernelTypes != nil {
		kernel = l.cfg.Tests.KernelTypes
	}
	if l.cfg.Proc == "" {
		_ = l.symbols.Use(cache, kernel) // on an error the text is read, which has the same
	}
	rdma := l.rdmaNow()
	found, err := l.functions()
	if err != nil {
		return err
	}
	if l.cfg.Tests.Meanwhile != nil {
		l.cfg.Tests.Meanwhile()
	}
	cs, err := objects.Spec("core")
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
				return fault.New(h.function, why, "", errors.ErrUnsupported)
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
	objects.Keep(cs, programs(wanted)...)
	cs.Maps["events"].MaxEntries = uint32(l.cfg.RingSize)
	if err := cs.Variables["windows"].Set(abi.WindowBytes(m.Windows())); err != nil {
		return fmt.Errorf("trace: memory map: %w", err)
	}
	l.core, err = ebpf.NewCollectionWithOptions(cs, ebpf.CollectionOptions{
		Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if _, ok := found[trampolines]; !ok && errors.Is(err, unix.ENOMEM) {
		return fault.New("bpf", "the kernel has nothing to put programs at a function's entry and exit with",
			"use a kernel that is built with CONFIG_BPF_JIT", errors.ErrUnsupported)
	}
	if err != nil {
		return fault.Load(err)
	}
	if err := l.configure(found["vmemmap_base"].Addr); err != nil {
		return err
	}
	if err := l.attachAll(l.core, wanted, nil); err != nil {
		return err
	}
	types := func() (*btf.Cache, *btf.Spec, error) { return cache, kernel, nil }
	if !l.cfg.Tests.RDMALater {
		if _, ok := found[uverbsIsThere]; !ok {
			// ib_uverbs may have been loaded before the program that sees modules was attached.
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
	return l.loadExporters(types, found, AllModules)
}

// Has reports whether a program or a group of them is attached.
func (l *Loader) Has(name string) bool { return l.have[name] }

// absent says why a function of vmlinux cannot be watched.
func (l *Loader) absent(h hook, found map[string]symbols.Symbol, kernel *btf.Spec) string {
	if sym, ok := found[h.function]; !ok || sym.Module != "" {
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

func (l *Loader) note(h hook, module, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, Hook{Function: h.function, Module: module, What: h.what, Absent: why})
}

// Map is one of the maps that all programs share, by its name in bpf/state.h. Load must have
// succeeded.
func (l *Loader) Map(name string) *ebpf.Map { return l.core.Maps[name] }

// FreeTypes forgets the kernel's types. ModuleCame reads them again when it needs them.
func (l *Loader) FreeTypes() { l.types = nil }

// Hooks returns the functions that are watched, and those that are not.
func (l *Loader) Hooks() []Hook {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hooks)
}

// configure fills the configuration and filter maps, before anything is
// attached.
func (l *Loader) configure(vmemmap uint64) error {
	c := abi.Config{
		Wake:      uint64(l.cfg.RingSize / 4),
		Walk:      uint32(l.cfg.WalkLimit),
		PageShift: uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	}
	switch runtime.GOARCH {
	case "amd64":
		c.Vmemmap = vmemmap
	case "arm64": // its address is in no variable
		c.Pages = machine.ARM64Pages(machine.KCore, uint64(os.Getpagesize()))
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
		c.Flags |= abi.ConfigPIDs
		err := l.countKey(abi.KeysPIDs, uint64(pid))
		if err == nil {
			err = fault.Errno(l.core.Maps["pids"].Put(uint64(pid), one))
		}
		if err != nil {
			return fault.New("process filter", fmt.Sprintf("%d processes", len(pids)), "", err)
		}
	}
	for _, ino := range l.cfg.Inodes {
		c.Flags |= abi.ConfigInodes
		if err := l.core.Maps["inodes"].Put(ino, one); err != nil {
			return fault.New("inode filter", fmt.Sprintf("%d inodes", len(l.cfg.Inodes)), "", fault.Errno(err))
		}
	}
	if l.cfg.Cgroup != "" {
		c.Flags |= abi.ConfigCgroup
		dir, err := openCgroup(l.cfg.Cgroup)
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := l.core.Maps["cgroups"].Put(uint32(0), uint32(dir.Fd())); err != nil {
			return fault.New(l.cfg.Cgroup, "not a cgroup v2 directory", "name a directory of a cgroup v2 mount", fault.Errno(err))
		}
	}
	if l.cfg.RDMAOnly {
		c.Flags |= abi.ConfigRDMAOnly
	}
	if l.cfg.Exports {
		c.Flags |= abi.ConfigExports
	}
	return l.SetConfig(c)
}

// openCgroup opens a directory, and no FIFO, whose opening would wait for a writer.
func openCgroup(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fault.New(path, "the cgroup filter", "name a directory of a cgroup v2 mount", fault.Errno(err))
	}
	return dir, nil
}

// SetConfig hands the configuration to the programs.
func (l *Loader) SetConfig(c abi.Config) error {
	if err := l.core.Maps["config"].Put(uint32(0), c.Bytes()); err != nil {
		return fault.New("configuration", "", "", fault.Errno(err))
	}
	return nil
}

// attachAll attaches programs in the table's order.
func (l *Loader) attachAll(coll *ebpf.Collection, table []hook, modules map[string]string) error {
	for _, h := range table {
		k, err := attach(coll.Programs[h.program], h, 0)
		module := modules[h.function]
		if err != nil {
			if h.always {
				return fault.New(h.function, "attaching: "+err.Error(), "", fault.Errno(err))
			}
			l.note(h, module, "attaching failed: "+err.Error())
			continue
		}
		l.attached(k, coll.Programs[h.program], h, module)
		l.notes(h.program)
	}
	return nil
}

// attached remembers a link. The skipped runs of a program that several functions share are
// counted under the first of them. Those of a program that only tidies up are not counted: see
// Reclaim.
func (l *Loader) attached(k link.Link, p *ebpf.Program, h hook, module string) {
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
	if cookie != 0 { // takes a BPF link, for which the type has to be set
		opts.AttachType = ebpf.AttachTraceFExit
	}
	return link.AttachTracing(opts)
}

// shared are the maps that an object beside the core works on.
func (l *Loader) shared(cs *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for _, name := range SharedMaps {
		if m := cs.Maps[name]; m != nil {
			m.MaxEntries = l.core.Maps[name].MaxEntries()
			out[name] = l.core.Maps[name]
		}
	}
	return out
}

// RefreshWindows gives the programs a new memory map.
func (l *Loader) RefreshWindows(m *placement.Machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return os.ErrClosed
	}
	return l.core.Variables["windows"].Set(abi.WindowBytes(machine.Windows(m)))
}

// OpName is the exporter function of a cookie.
func (l *Loader) OpName(cookie uint16) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(cookie) < len(l.ops) {
		return l.ops[cookie]
	}
	return ""
}

// Close detaches and frees everything. It first sets a flag by which the programs stop.
// Detaching waits for the kernel's grace periods, so Close detaches all links concurrently.
func (l *Loader) Close() {
	l.work.Lock()
	defer l.work.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core != nil {
		if m := l.core.Maps["config"]; m != nil {
			c := abi.Config{Flags: abi.ConfigStopped}
			_ = m.Put(uint32(0), c.Bytes())
		}
	}
	closeAll(l.links)
	for _, c := range l.more {
		c.Close()
	}
	if l.core != nil {
		l.core.Close()
	}
	l.symbols.Close()
	l.links, l.runs, l.more, l.core, l.probe = nil, nil, nil, nil, nil
}

func closeAll(links []attached) {
	var wg sync.WaitGroup
	for _, k := range links {
		wg.Go(func() { _ = k.Close() })
	}
	wg.Wait()
}
