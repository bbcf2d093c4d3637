// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// host is what decides for all pairs of a machine.
type host struct {
	Kernel     string           `json:"kernel"`
	P2PDMA     placement.Answer `json:"p2pdma"`
	MoveNotify placement.Answer `json:"move_notify"`
	Config     string           `json:"config"`
	CPU        string           `json:"cpu"`
}

// place is where a device is; null of what is not known, or not there.
type place struct {
	Root  *string `json:"pcie_root"` // the host bridge's bus: "pci0000:00"
	NUMA  *int    `json:"numa_node"`
	Group *string `json:"iommu_group"`
}

type gpu struct {
	Name      string        `json:"name"`
	PCI       *machine.Addr `json:"pci"`
	Driver    string        `json:"driver"`
	Exporter  string        `json:"exporter"`
	OutOfTree bool          `json:"out_of_tree"`
	Counts    bool          `json:"counts"`
	place
}

type nic struct {
	Name       string        `json:"name"`
	PCI        *machine.Addr `json:"pci"`
	Driver     string        `json:"driver"`
	Importer   string        `json:"importer"`
	PeerToPeer bool          `json:"peer_to_peer"`
	ByCPU      bool          `json:"by_cpu"`
	Software   bool          `json:"software"`
	NetDevs    []string      `json:"netdevs"`
	place
}

type redirect struct {
	PCI  machine.Addr `json:"pci"`
	Bits string       `json:"bits"`
}

// decision is the kernel's.
type decision struct {
	Type      string           `json:"map_type"`
	Supported placement.Answer `json:"supported"`
	Steps     *int             `json:"steps"`
	Distance  *int             `json:"distance"`
	Common    *machine.Addr    `json:"common"`
	Redirects []redirect       `json:"redirects"`
	Why       []string         `json:"why"`
}

type remedy struct {
	Change  string `json:"change"`
	Command string `json:"command,omitempty"`
	Weakens string `json:"weakens,omitempty"`
	Direct  bool   `json:"direct"`
}

type pair struct {
	GPU      string    `json:"gpu"`
	NIC      string    `json:"nic"`
	Outcome  string    `json:"outcome"`
	Counts   bool      `json:"counts"`
	Errno    *numbered `json:"errno,omitempty"`
	Stage    string    `json:"stage,omitempty"`
	Address  string    `json:"address"`
	Decision decision  `json:"decision"`
	NCCL     string    `json:"nccl"`
	NVML     string    `json:"nvml"`
	Why      []string  `json:"why"`
	Notes    []string  `json:"notes"`
	Remedy   *remedy   `json:"remedy"`
	Proof    *proof    `json:"proof"`
}

// summary counts the pairs that count.
type summary struct {
	Direct  int `json:"direct"`
	Staged  int `json:"staged"`
	Refused int `json:"refused"`
	Unknown int `json:"unknown"`
	Outside int `json:"outside"`
}

type checkResult struct {
	Machine host     `json:"machine"`
	Process *process `json:"process"` // null if it is p2pcheck itself
	GPUs    []gpu    `json:"gpus"`
	NICs    []nic    `json:"nics"`
	Pairs   []pair   `json:"pairs"` // by GPU, then by NIC
	Summary summary  `json:"summary"`

	Live *liveRun `json:"live"` // null if nobody asked for a proof

	Checks []finding `json:"checks"` // in the order of explain
	Tally  tally     `json:"tally"`

	Baseline string  `json:"baseline,omitempty"` // what Drift is since
	Drift    []drift `json:"drift"`
	// Uncompared are the checks of which one of the two says nothing.
	Uncompared int `json:"uncompared,omitempty"`

	// Ran and Said are the status and the errors of the run that a file has: not all of
	// them are in the result.
	Ran  int      `json:"-"`
	Said []string `json:"-"`
}

// process is the one that --pid names.
type process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

func processOf(m *machine.Machine) *process {
	if pid, name := m.Process(); pid != 0 {
		return &process{pid, name}
	}
	return nil
}

func hostOf(m *machine.Machine) host {
	return host{Kernel: m.Kernel.Release, P2PDMA: m.Kernel.P2PDMA, MoveNotify: m.Kernel.MoveNotify, Config: m.Kernel.Source, CPU: m.CPU.String()}
}

// check predicts for all pairs, proves them if that was asked for, and carries
// out the checks.
func (a *app) check(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	if !a.proving {
		return a.checkAnd(nil, m, gpus, nics)
	}
	return a.checkAnd(a.prove, m, gpus, nics)
}

func (a *app) checkAnd(prove func(*machine.Machine, []p2p.Pair) (*liveRun, error), m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	p2p.Combine(m, pairs)
	r := newResult(m, gpus, nics, pairs)
	var unproven error
	if prove != nil {
		var live *liveRun
		live, unproven = prove(m, pairs)
		r.addProofs(live, pairs)
	}
	subject := check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs, Skip: a.skip}
	if here(a.source) {
		subject.Live = a.live
	}
	r.addFindings(checks.Run(m, subject))
	if a.baseline != "" {
		before, err := readResult(a.baseline)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		r.Baseline = a.baseline
		r.Drift, r.Uncompared = drifted(before, r)
	}
	return checkOutput(r), errors.Join(nothing(gpus, nics), unproven)
}

// missing says which devices a pair needs and the machine does not have.
func missing(gpus []drivers.GPU, nics []drivers.NIC) (out []string) {
	if len(gpus) == 0 {
		out = append(out, "no GPU was found")
	}
	if len(nics) == 0 {
		out = append(out, "no RDMA device was found")
	}
	return out
}

// nothing is the error of a machine that lacks GPUs or NICs.
func nothing(gpus []drivers.GPU, nics []drivers.NIC) error {
	var errs []error
	for _, what := range missing(gpus, nics) {
		errs = append(errs, &cli.Unavailable{Err: errors.New(what)})
	}
	return errors.Join(errs...)
}

func gpuOf(m *machine.Machine, g drivers.GPU) gpu {
	e := g.Exporter
	return gpu{g.Name, e.PCI, e.Driver, e.Class.String(), e.OutOfTree, e.Class != drivers.ClassSystem, placeOf(m, e.PCI)}
}

func nicOf(m *machine.Machine, n drivers.NIC) nic {
	i := n.Importer
	return nic{n.Name, i.PCI, i.Driver, i.Kind.String(), i.PeerToPeer, i.ByCPU, n.Software, list(n.NetDevs), placeOf(m, i.PCI)}
}

// placeOf finds a device. That of one that cannot be read is not known, which
// the checks say.
func placeOf(m *machine.Machine, a *machine.Addr) place {
	if a == nil {
		return place{}
	}
	at, err := m.Place(*a)
	if err != nil {
		return place{}
	}
	out := place{Root: &at.Bus}
	if at.NUMANode >= 0 {
		out.NUMA = &at.NUMANode
	}
	if at.Group != "" && at.GroupErr == nil {
		out.Group = &at.Group
	}
	return out
}

// list is never null in JSON.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func pairOf(p p2p.Pair) pair {
	out := pair{
		GPU: p.GPU.Name, NIC: p.NIC.Name, Counts: p.GPU.Exporter.Class != drivers.ClassSystem,
		Outcome: p.Prediction.Outcome.String(), Stage: string(p.Prediction.Stage), Address: p.Prediction.Address.String(),
		Decision: decisionOf(p.Prediction.Decision), NCCL: p.Letters.NCCL, NVML: p.Letters.NVML,
		Why: list(p.Prediction.Why), Notes: list(p.Prediction.Notes),
	}
	if e := p.Prediction.Errno; e != 0 {
		out.Errno = numberedOf(e)
	}
	if p.Remedy != nil {
		out.Remedy = (*remedy)(p.Remedy)
	}
	return out
}

func decisionOf(d p2pdma.Decision) decision {
	out := decision{Type: d.Type.String(), Supported: d.Supported, Common: d.Common, Redirects: []redirect{}, Why: list(d.Why)}
	if d.Steps >= 0 {
		out.Steps = &d.Steps
	}
	if n, ok := d.Distance(); ok {
		out.Distance = &n
	}
	for _, r := range d.Redirects {
		out.Redirects = append(out.Redirects, redirect{r.PCI, r.Bits.String()})
	}
	return out
}

// all are the pairs that count.
func (s summary) all() int { return s.Direct + s.Staged + s.Refused + s.Unknown }

func (s *summary) add(p pair) {
	switch {
	case !p.Counts:
		s.Outside++
	case p.Outcome == drivers.Direct.String():
		s.Direct++
	case p.Outcome == drivers.Staged.String():
		s.Staged++
	case p.Outcome == drivers.Refused.String():
		s.Refused++
	default:
		s.Unknown++
	}
}

// status is the exit status of a run that found this.
func (r checkResult) status() int { return worse(r.Ran, r.found()) }

// found is the status of what was found.
func (r checkResult) found() int {
	var s summary
	for _, p := range r.Pairs {
		p.Outcome = r.now(p)
		s.add(p)
	}
	switch {
	case s.Staged+s.Refused > 0 || slices.ContainsFunc(r.Drift, drift.worse) || r.broken():
		return statusBad
	case r.Tally.Fail == 0 && (s.Unknown > 0 || s.Direct == 0):
		return statusUnknown
	}
	return r.Tally.status()
}

// newResult has the devices and the pairs of a machine. The pairs are in the order of
// the GPUs, then of the NICs.
func newResult(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC, pairs []p2p.Pair) checkResult {
	r := checkResult{Machine: hostOf(m), Process: processOf(m), GPUs: []gpu{}, NICs: []nic{}, Pairs: []pair{}, Checks: []finding{}, Drift: []drift{}}
	for _, g := range gpus {
		r.GPUs = append(r.GPUs, gpuOf(m, g))
	}
	for _, n := range nics {
		r.NICs = append(r.NICs, nicOf(m, n))
	}
	for _, whole := range pairs {
		p := pairOf(whole)
		r.Pairs = append(r.Pairs, p)
		r.Summary.add(p)
	}
	return r
}

// addProofs adds what was proven of the pairs that newResult took.
func (r *checkResult) addProofs(live *liveRun, pairs []p2p.Pair) {
	r.Live = live
	for i, p := range pairs {
		r.Pairs[i].Proof = proofOf(p)
		r.Live.add(r.Pairs[i])
	}
}

// addFindings adds what the checks found.
func (r *checkResult) addFindings(all []check.Finding) {
	r.Checks = findingsOf(all)
	r.Tally = tallyOf(r.Checks)
}

// numbered is an error number of the kernel with its name.
type numbered struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

func numberedOf(e unix.Errno) *numbered { return &numbered{Name: errno.Name(e), Number: int(e)} }

// checkOutput is what check prints.
type checkOutput checkResult

func (c checkOutput) text(w io.Writer, a *app) error { return printText(w, a.style(), checkResult(c)) }

func (c checkOutput) status() int { return checkResult(c).status() }

// Statuses of a run. They are the exit statuses of command p2pcheck.
const (
	statusGood    = 0 // all pairs are direct, and no check fails
	statusBad     = 1 // a pair is not direct, or a check fails
	statusUnread  = 2 // nothing could be read
	statusUnknown = 3 // nothing is bad, and something is not known
)

// anOutcome reports that a pair can have this outcome.
func anOutcome(name string) bool {
	return slices.ContainsFunc([]drivers.Outcome{drivers.Direct, drivers.Staged, drivers.Refused, drivers.OutcomeUnknown}, func(o drivers.Outcome) bool { return o.String() == name })
}
