// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Check is one condition for NICs to reach the memory of GPUs.
type Check struct {
	ID     string       // "PCIE-LINK"; an ID never changes
	Title  string       // the statement that holds if the check passes
	Why    string       // why the statement matters
	Fix    chain.Remedy // the usual remedy
	Ref    string       // the source of the rule
	Worst  p2p.Result   // ResultFail, or ResultWarn for a check that never fails
	Expect string       // the value that the check expects to read
	// ByHand are the commands, one a line, by which a person reads what the check reads. Capitals
	// stand for names: GPU, FUNCTION and PORT are PCI addresses, NIC is an RDMA device, NETDEV its
	// network device, GROUP a control group. "" if there is no such command.
	ByHand string
	// Links are the links of a pair's chain that the check answers: a failure about a pair breaks
	// one of them. A check without links decides no pair.
	Links []chain.Link

	// Run carries out the check: it adds findings to the Look by Pass, Warn, Fail, Unknown or Skip.
	Run func(*Look)
}

// Family returns the part of the ID before the first dash: "PCIE".
func (c Check) Family() string {
	family, _, _ := strings.Cut(c.ID, "-")
	return family
}

// Finding is one result of one check, about the devices in Scope.
type Finding struct {
	Check  *Check
	Result p2p.Result
	Scope  []string      // GPUs, NICs, ports, "GPU -> NIC"; empty for the whole machine
	Read   string        // the value that the check read
	Where  []string      // the files with the value, by their names on that machine
	Expect string        // the value that the check expects
	Remedy *chain.Remedy // nil if the finding passes, or if there is no remedy
	// Aside says that an unknown finding does not decide about the machine: there was no library to
	// ask, as for every copy of a machine, or the kernel has dropped the older lines of its log, as
	// on every machine that has run for long.
	Aside bool
}

// Hides reports whether the finding may hide a failure: it is unknown, and its check can fail. A
// machine with such a finding is not known to be good.
func (f Finding) Hides() bool { return f.Result == p2p.ResultUnknown && f.Decides() }

// Decides reports whether the finding decides about the machine.
func (f Finding) Decides() bool { return f.Check.Worst == p2p.ResultFail && !f.Aside }

// Subject has the devices that the checks look at, and the options of the checks.
type Subject struct {
	GPUs  []drivers.GPU
	NICs  []drivers.NIC
	Pairs []p2p.Pair // each of the GPUs with each of the NICs
	// Skip has the IDs of checks, and of families of checks ("NET"), that are left out; "all" leaves
	// out all.
	Skip []string
	Live Live // asks this machine itself; the zero value for a copy
	// Containers, if there are any, are judged in place of the process's environment. Spec is the
	// name of the file that describes them.
	Containers []variables.Container
	Spec       string
	// Wanted, if not nil, ends the run early: after it has ended, no further check begins.
	Wanted context.Context
}

// Live has functions that ask this machine itself, by libraries and system calls. A function that is
// nil is not called. Those that ask NVIDIA's libraries are called only if NVIDIA's driver has a GPU.
// Without the library they return ErrNotAsked.
type Live struct {
	// DMABuf asks CUDA for each GPU whether it exports dma-bufs.
	DMABuf func() (map[pciaddr.Addr]Export, error)
	// Confidential asks NVML whether confidential computing is on.
	Confidential func() (bool, error)
	// Peers asks NVML whether NVIDIA's GPUs reach each other.
	Peers func() ([]Peer, error)
	// Memory asks NVML for the size of each GPU's memory, in bytes.
	Memory func() (map[pciaddr.Addr]uint64, error)
	// BAR1 asks NVML how much of BAR 1 of each of NVIDIA's GPUs is in use.
	BAR1 func() (map[pciaddr.Addr]Usage, error)
	// Imports asks an RDMA driver whether it imports dma-bufs.
	Imports func(nic string) (ibvfd.Support, error)
	// Port asks a NIC for a port's state; a build or a machine without libibverbs
	// answers ErrNotAsked.
	Port func(nic string, port int) (ibdev.PortAttr, error)
	// PFC asks a network device for which priorities flow control is on.
	PFC func(netdev string) ([]int, error)
	// Opens tries to open a device file for reading and writing. The error is that of open(2).
	Opens func(path string) error
}

// ErrNotAsked means that only a library knows the answer, and that this machine or build does not
// have the library.
var ErrNotAsked = errors.New("there is no library to be asked")

// Export says whether a driver exports dma-bufs of a GPU.
type Export struct {
	OK          bool
	Why, Remedy string // why not, and what to change; "" if OK
	// RDMA is the attribute GPU_DIRECT_RDMA_SUPPORTED, unknown if the driver does not have it.
	RDMA placement.Answer
}

// Peer says whether GPU A can read and write the memory of GPU B. Read and Write are NVML's words;
// OK is true if A can do both.
type Peer struct {
	A, B        pciaddr.Addr
	OK          bool
	Read, Write string
}

// Usage is the size of a window and the part of it that is taken, in bytes.
type Usage struct{ Total, Used uint64 }

// WithoutGPU reports whether the machine is known to have no GPU with memory of its own. On such a
// machine the checks of NICs do not fail, because no GPU needs the NICs.
func WithoutGPU(l *Look) bool {
	if len(l.GPUs) > 0 {
		return false
	}
	if _, r := l.List("sys/bus/pci/devices"); r.Err != nil {
		return false
	}
	_, err := drivers.GPUs(l.Machine)
	return err == nil
}

// Excuse changes a failure into a skip. Package checks calls it for the failures on a machine without a
// GPU.
func (f *Finding) Excuse() {
	f.Result, f.Expect, f.Remedy = p2p.ResultSkip, "", nil
	f.Read = "no GPU needs it here: " + f.Read
}

// Join adds a finding to all. If all has an equal finding about other devices, Join adds the devices
// to that one.
func Join(all []Finding, f Finding) []Finding {
	for i := len(all) - 1; i >= 0 && all[i].Check == f.Check; i-- {
		g := &all[i]
		if g.Result != f.Result || g.Aside != f.Aside || g.Read != f.Read || g.Expect != f.Expect || !sameRemedy(g.Remedy, f.Remedy) {
			continue
		}
		g.Scope = append(g.Scope, f.Scope...)
		for _, where := range f.Where {
			if !slices.Contains(g.Where, where) && len(g.Where) < ShownFiles {
				g.Where = append(g.Where, where)
			}
		}
		return all
	}
	return append(all, f)
}

// ShownFiles is the number of names that a finding lists, such as those of files with the same text.
// It counts the others.
const ShownFiles = 4

func sameRemedy(a, b *chain.Remedy) bool { return a == b || a != nil && b != nil && *a == *b }

// Look is one run of the checks. Package checks makes it. One goroutine uses it at a time.
type Look struct {
	Machine *machine.Machine
	Subject Subject
	GPUs    []drivers.GPU // the GPUs with memory of their own
	Pairs   []p2p.Pair    // the pairs of these GPUs

	Functions map[pciaddr.Addr]*Function // the results of Function
	Memo      map[string]any             // the results of Once

	openings *p2p.Openings // see Opening; nil until it is asked for

	Check *Check     // the check that runs
	Found []*Finding // its findings so far
}

// Say adds a finding about scope, or about the machine if scope is empty. where are the files that the
// check read; format and args make the value that it read, as in fmt.Sprintf. The finding of a warning
// or a failure has the check's usual remedy. The caller may change the finding that Say returns.
func (l *Look) Say(r p2p.Result, scope string, where []string, format string, args ...any) *Finding {
	f := &Finding{Check: l.Check, Result: r, Where: where, Read: human.Short(l.Machine.Named(fmt.Sprintf(format, args...)), chain.MostText)}
	if scope != "" {
		f.Scope = []string{scope}
	}
	if r != p2p.ResultSkip {
		f.Expect = l.Check.Expect
	}
	if (r == p2p.ResultWarn || r == p2p.ResultFail) && l.Check.Fix != (chain.Remedy{}) {
		fix := l.Check.Fix
		if fix.Command == machine.PassThrough {
			fix.Command = l.Machine.CPU.PassThrough()
		}
		f.Remedy = &fix
	}
	l.Found = append(l.Found, f)
	return f
}

// Pass adds a pass: scope, or the machine if scope is empty, has the value that the check expects.
func (l *Look) Pass(scope string, where []string, format string, args ...any) *Finding {
	return l.Say(p2p.ResultPass, scope, where, format, args...)
}

// Warn adds a warning about scope, or about the machine if scope is empty: a fault that costs speed,
// or a value that may be a fault.
func (l *Look) Warn(scope string, where []string, format string, args ...any) *Finding {
	return l.Say(p2p.ResultWarn, scope, where, format, args...)
}

// Fail adds a failure of scope, or of the machine if scope is empty.
func (l *Look) Fail(scope string, where []string, format string, args ...any) *Finding {
	return l.Say(p2p.ResultFail, scope, where, format, args...)
}

// Unknown adds an unknown: the value that decides about scope, or about the machine if scope is
// empty, could not be read.
func (l *Look) Unknown(scope string, where []string, format string, args ...any) *Finding {
	return l.Say(p2p.ResultUnknown, scope, where, format, args...)
}

// Skip adds a skip: the check does not apply, for the reason that format and args make.
func (l *Look) Skip(format string, args ...any) { l.Say(p2p.ResultSkip, "", nil, format, args...) }

// SetAside sets Aside of an unknown finding, and returns the finding.
func (f *Finding) SetAside() *Finding {
	f.Aside = true
	return f
}

// Fix replaces the finding's remedy, and returns the finding.
func (f *Finding) Fix(change, command, weakens string) *Finding {
	f.Remedy = &chain.Remedy{Change: change, Command: command, Weakens: weakens}
	return f
}

// Function is a GPU, a NIC, or a port above one.
type Function struct {
	machine.Function
	Name   string // of a NIC "mlx5_0", otherwise the PCI address
	Err    error  // why the function could not be read
	Config pci.Config
	CfgErr error  // why Config could not be read
	Dir    string // below /sys: "bus/pci/devices/0000:03:00.0"
}

// Once calls read the first time that a check of this run uses the key, and returns the same result
// each time. All callers of a key must use the same type. They must not change the result.
func Once[T any](l *Look, key string, read func() T) T {
	if v, ok := l.Memo[key]; ok {
		return v.(T)
	}
	v := read()
	l.Memo[key] = v
	return v
}

// Function returns a PCI function, which it reads once. If the function cannot be read, its Err is set,
// and all facts but PCI, Name and Dir are missing. The caller must not change it.
func (l *Look) Function(a pciaddr.Addr) *Function {
	if f := l.Functions[a]; f != nil {
		return f
	}
	f := &Function{Name: a.String(), Dir: "bus/pci/devices/" + a.String()}
	l.Functions[a] = f
	if f.Function, f.Err = l.Machine.Function(a); f.Err != nil {
		f.PCI, f.CfgErr = a, f.Err
		return f
	}
	f.Config, f.CfgErr = pci.ReadConfig(l.Machine.Sys, a)
	return f
}

// GPUFunctions returns the PCI functions of the GPUs.
func (l *Look) GPUFunctions() []*Function {
	var out []*Function
	for _, g := range l.GPUs {
		if g.Exporter.PCI != nil {
			out = append(out, l.Function(*g.Exporter.PCI))
		}
	}
	return out
}

// NICFunctions returns the PCI functions of the NICs, each once.
func (l *Look) NICFunctions() []*Function {
	var out []*Function
	for _, n := range l.Subject.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		f := l.Function(*n.Importer.PCI)
		if !slices.Contains(out, f) {
			f.Name = n.Name
			out = append(out, f)
		}
	}
	return out
}

// Endpoints returns the PCI functions of the GPUs and the NICs.
func (l *Look) Endpoints() []*Function { return append(l.GPUFunctions(), l.NICFunctions()...) }

// Ports returns the bridges above the GPUs and the NICs.
func (l *Look) Ports() []*Function {
	var out []*Function
	seen := map[pciaddr.Addr]bool{}
	for _, f := range l.Endpoints() {
		for _, up := range f.Upstream {
			if !seen[up] {
				seen[up] = true
				out = append(out, l.Function(up))
			}
		}
	}
	return out
}

// All returns Endpoints and Ports.
func (l *Look) All() []*Function { return append(l.Endpoints(), l.Ports()...) }

// Driven returns the GPUs that one of the drivers drives.
func (l *Look) Driven(names ...string) []drivers.GPU {
	var out []drivers.GPU
	for _, g := range l.GPUs {
		if slices.Contains(names, g.Exporter.Driver) {
			out = append(out, g)
		}
	}
	return out
}

// Imported returns the NICs whose PCI function has one of the drivers.
func (l *Look) Imported(names ...string) []drivers.NIC {
	var out []drivers.NIC
	for _, n := range l.Subject.NICs {
		if slices.Contains(names, n.Importer.Driver) {
			out = append(out, n)
		}
	}
	return out
}
