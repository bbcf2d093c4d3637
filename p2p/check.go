// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/pci"
)

// Result is what a check found.
type Result int

// The results. The zero value is no pass.
const (
	ResultUnknown Result = iota // what decides could not be read
	ResultSkip                  // it does not apply here, or is not looked at
	ResultPass
	ResultWarn
	ResultFail
)

var resultNames = []string{"unknown", "skip", "pass", "warn", "fail"}

func (r Result) String() string {
	if r < 0 || int(r) >= len(resultNames) {
		return fmt.Sprintf("invalid (%d)", int(r))
	}
	return resultNames[r]
}

// Check is one thing that has to hold for NICs to reach the memory of GPUs.
type Check struct {
	ID     string // "PCIE-LINK"; it stays what it is
	Title  string // what holds if it passes
	Why    string // why that matters
	Fix    Remedy // the usual one
	Ref    string // where the rule comes from
	Worst  Result // ResultFail, or ResultWarn of one that never says more
	Expect string // what is expected to be read

	run func(*look)
}

// Family is the part of the ID before the first dash.
func (c Check) Family() string {
	family, _, _ := strings.Cut(c.ID, "-")
	return family
}

// Finding is what one check found, of the devices in Scope.
type Finding struct {
	Check  *Check
	Result Result
	Scope  []string // GPUs, NICs, ports, "GPU -> NIC"; none if it is the machine
	Read   string   // what was read
	Where  []string // in which files, by their names on that machine
	Expect string   // what was expected
	Remedy *Remedy  // of what does not pass; nil if there is none
	// Aside says that it decides nothing that it is unknown: nobody could be asked,
	// as in every copy of a machine, or what there was to see is no longer kept, as on
	// every machine that has run for long.
	Aside bool
}

// Hides reports that the finding may stand for a failure: it is unknown, and
// its check can fail. A machine with such a finding is not known to be good.
func (f Finding) Hides() bool { return f.Result == ResultUnknown && f.Decides() }

// Decides reports that the finding says whether the machine is good.
func (f Finding) Decides() bool { return f.Check.Worst == ResultFail && !f.Aside }

// Subject is what is checked.
type Subject struct {
	GPUs  []GPU
	NICs  []NIC
	Pairs []Pair // each of the GPUs with each of the NICs
	// Skip has IDs of checks that are not wanted, and families of them ("NET");
	// "all" is all of them.
	Skip []string
	Live Live // what only the machine itself can say; zero of a copy
}

// Live asks the machine that this is. What is nil is not asked. What a library
// would have to say is asked only where there is a GPU of NVIDIA's driver; a
// build or a machine without that library answers ErrNotAsked.
type Live struct {
	// DMABuf is what CUDA says of exporting, by GPU.
	DMABuf func() (map[Addr]Export, error)
	// Confidential is whether NVML says that confidential computing is on.
	Confidential func() (bool, error)
	// Peers is what NVML says of NVIDIA's GPUs among each other.
	Peers func() ([]Peer, error)
	// Memory is how much memory NVML says that a GPU has.
	Memory func() (map[Addr]uint64, error)
	// BAR1 is how much of NVIDIA's window is taken, by GPU.
	BAR1 func() (map[Addr]Usage, error)
	// Imports asks an RDMA driver whether it imports dma-bufs.
	Imports func(nic string) (ibvfd.Support, error)
	// Port asks a NIC for a port's state; a build or a machine without libibverbs
	// answers ErrNotAsked.
	Port func(nic string, port int) (ibvfd.PortAttr, error)
	// PFC asks a network device for which priorities flow control is on.
	PFC func(netdev string) ([]int, error)
	// Opens tries to open a device file for reading and writing.
	Opens func(path string) error
}

// ErrNotAsked is of what only a library says, and there is none to be asked.
var ErrNotAsked = errors.New("there is no library to be asked")

// Export is whether a driver exports dma-bufs, and why not.
type Export struct {
	OK          bool
	Why, Remedy string
}

// Peer is two GPUs, and what reading and writing between them comes to.
type Peer struct {
	A, B        Addr
	OK          bool
	Read, Write string
}

// Usage is a part of something, in bytes.
type Usage struct{ Total, Used uint64 }

// families are all checks, in the order in which they are told.
var families = [][]Check{
	kernelChecks, environmentChecks, decisionChecks, isolationChecks, linkChecks, gpuChecks, nvidiaChecks, amdChecks,
	intelChecks, otherGPUChecks, nicChecks, networkChecks, limitChecks, containerChecks, guestChecks, libraryChecks,
	proofChecks,
}

// Checks lists all checks there are.
func Checks() []*Check {
	var out []*Check
	for _, family := range families {
		for i := range family {
			out = append(out, &family[i])
		}
	}
	return out
}

// Check carries out all checks, in the order of Checks.
func (m *Machine) Check(s Subject) []Finding {
	l := &look{m: m, s: s, functions: map[Addr]*function{}, memo: map[string]any{}}
	for _, g := range s.GPUs {
		if g.Exporter.Class != ClassSystem {
			l.gpus = append(l.gpus, g)
		}
	}
	for _, p := range s.Pairs {
		if p.GPU.Exporter.Class != ClassSystem {
			l.pairs = append(l.pairs, p)
		}
	}
	alone := l.withoutGPU()
	var out []Finding
	for _, c := range Checks() {
		if slices.ContainsFunc(s.Skip, func(skip string) bool { return skip == c.ID || skip == c.Family() || skip == "all" }) {
			continue
		}
		l.check, l.found = c, nil
		c.run(l)
		for _, f := range l.found {
			l.guest(f)
			l.answer(f)
			if alone && f.Result == ResultFail {
				f.excuse()
			}
			out = join(out, *f)
		}
	}
	return out
}

// withoutGPU reports a machine that is known to have no GPU with memory of its
// own: a failure is of a NIC that does not reach one.
func (l *look) withoutGPU() bool {
	if len(l.gpus) > 0 {
		return false
	}
	if _, r := l.list("sys/bus/pci/devices"); r.err != nil {
		return false
	}
	_, err := l.m.GPUs()
	return err == nil
}

// excuse makes a failure one that does not apply.
func (f *Finding) excuse() {
	f.Result, f.Expect, f.Remedy = ResultSkip, "", nil
	f.Read = "no GPU needs it here: " + f.Read
}

// join adds a finding, or its devices to one that says the same of others.
func join(all []Finding, f Finding) []Finding {
	for i := len(all) - 1; i >= 0 && all[i].Check == f.Check; i-- {
		g := &all[i]
		if g.Result != f.Result || g.Aside != f.Aside || g.Read != f.Read || g.Expect != f.Expect || !sameRemedy(g.Remedy, f.Remedy) {
			continue
		}
		g.Scope = append(g.Scope, f.Scope...)
		for _, where := range f.Where {
			if !slices.Contains(g.Where, where) && len(g.Where) < shownFiles {
				g.Where = append(g.Where, where)
			}
		}
		return all
	}
	return append(all, f)
}

// shownFiles is of how many files a finding tells, if they all say the same.
const shownFiles = 4

func sameRemedy(a, b *Remedy) bool { return a == b || a != nil && b != nil && *a == *b }

// look is one run of the checks. What several need is read once.
type look struct {
	m     *Machine
	s     Subject
	gpus  []GPU  // those with memory of their own
	pairs []Pair // theirs

	functions map[Addr]*function
	memo      map[string]any // what once has read

	// What opens ports: those that pairs need, and all from which pairs gain.
	parameters struct{ needed, all *Remedy }

	check *Check
	found []*Finding
}

// say reports what was found of scope; of the machine if that is empty.
func (l *look) say(r Result, scope string, where []string, format string, args ...any) *Finding {
	f := &Finding{Check: l.check, Result: r, Where: where, Read: l.m.named(fmt.Sprintf(format, args...))}
	if scope != "" {
		f.Scope = []string{scope}
	}
	if r != ResultSkip {
		f.Expect = l.check.Expect
	}
	if (r == ResultWarn || r == ResultFail) && l.check.Fix != (Remedy{}) {
		fix := l.check.Fix
		if fix.Command == passThrough {
			fix.Command = l.m.CPU.passThrough()
		}
		f.Remedy = &fix
	}
	l.found = append(l.found, f)
	return f
}

func (l *look) pass(scope string, where []string, format string, args ...any) *Finding {
	return l.say(ResultPass, scope, where, format, args...)
}

func (l *look) warn(scope string, where []string, format string, args ...any) *Finding {
	return l.say(ResultWarn, scope, where, format, args...)
}

func (l *look) fail(scope string, where []string, format string, args ...any) *Finding {
	return l.say(ResultFail, scope, where, format, args...)
}

func (l *look) unknown(scope string, where []string, format string, args ...any) *Finding {
	return l.say(ResultUnknown, scope, where, format, args...)
}

func (l *look) skip(format string, args ...any) { l.say(ResultSkip, "", nil, format, args...) }

// aside says that what is not known decides nothing.
func (f *Finding) aside() *Finding {
	f.Aside = true
	return f
}

// fix replaces the usual remedy.
func (f *Finding) fix(change, command, weakens string) *Finding {
	f.Remedy = &Remedy{Change: change, Command: command, Weakens: weakens}
	return f
}

// function is a PCI function that matters: a GPU, a NIC, a port above one.
type function struct {
	Function
	name   string // "mlx5_0 0000:03:00.0", or its address
	err    error  // why nothing is known of it
	config pci.Config
	cfgErr error
	dir    string // "bus/pci/devices/0000:03:00.0"
}

// once reads what several checks need, the first time that one asks.
func once[T any](l *look, key string, read func() T) T {
	if v, ok := l.memo[key]; ok {
		return v.(T)
	}
	v := read()
	l.memo[key] = v
	return v
}

func (l *look) function(a Addr) *function {
	if f := l.functions[a]; f != nil {
		return f
	}
	f := &function{name: a.String(), dir: "bus/pci/devices/" + a.String()}
	l.functions[a] = f
	if f.Function, f.err = l.m.Function(a); f.err != nil {
		f.PCI, f.cfgErr = a, f.err
		return f
	}
	f.config, f.cfgErr = pci.ReadConfig(l.m.sys, a)
	return f
}

// gpuFunctions are those of the GPUs on PCI.
func (l *look) gpuFunctions() []*function {
	var out []*function
	for _, g := range l.gpus {
		if g.Exporter.PCI != nil {
			out = append(out, l.function(*g.Exporter.PCI))
		}
	}
	return out
}

// nicFunctions are those of the NICs on PCI, each once.
func (l *look) nicFunctions() []*function {
	var out []*function
	for _, n := range l.s.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		f := l.function(*n.Importer.PCI)
		if !slices.Contains(out, f) {
			f.name = n.Name
			out = append(out, f)
		}
	}
	return out
}

// endpoints are GPUs and NICs.
func (l *look) endpoints() []*function { return append(l.gpuFunctions(), l.nicFunctions()...) }

// ports are the bridges above them.
func (l *look) ports() []*function {
	var out []*function
	seen := map[Addr]bool{}
	for _, f := range l.endpoints() {
		for _, up := range f.Upstream {
			if !seen[up] {
				seen[up] = true
				out = append(out, l.function(up))
			}
		}
	}
	return out
}

// all are endpoints and ports.
func (l *look) all() []*function { return append(l.endpoints(), l.ports()...) }

// driven are the GPUs of drivers.
func (l *look) driven(drivers ...string) []GPU {
	var out []GPU
	for _, g := range l.gpus {
		if slices.Contains(drivers, g.Exporter.Driver) {
			out = append(out, g)
		}
	}
	return out
}

// imported are the NICs whose PCI function has one of the drivers.
func (l *look) imported(drivers ...string) []NIC {
	var out []NIC
	for _, n := range l.s.NICs {
		if slices.Contains(drivers, n.Importer.Driver) {
			out = append(out, n)
		}
	}
	return out
}

func (p Pair) name() string { return p.GPU.Name + " -> " + p.NIC.Name }
