// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/placement"
)

// machine is what decides for all pairs.
type machine struct {
	Kernel     string           `json:"kernel"`
	P2PDMA     placement.Answer `json:"p2pdma"`
	MoveNotify placement.Answer `json:"move_notify"`
	Config     string           `json:"config"`
	CPU        string           `json:"cpu"`
	// Notes say what a text of lspci lacks; none for other machines.
	Notes []string `json:"notes,omitempty"`
}

// place is where a device is; null of what is not known, or not there.
type place struct {
	Root  *string `json:"pcie_root"` // the host bridge's bus: "pci0000:00"
	NUMA  *int    `json:"numa_node"`
	Group *string `json:"iommu_group"`
}

type gpu struct {
	Name      string    `json:"name"`
	PCI       *p2p.Addr `json:"pci"`
	Driver    string    `json:"driver"`
	Exporter  string    `json:"exporter"`
	OutOfTree bool      `json:"out_of_tree"`
	Counts    bool      `json:"counts"`
	place
}

type nic struct {
	Name       string    `json:"name"`
	PCI        *p2p.Addr `json:"pci"`
	Driver     string    `json:"driver"`
	Importer   string    `json:"importer"`
	PeerToPeer bool      `json:"peer_to_peer"`
	ByCPU      bool      `json:"by_cpu"`
	Software   bool      `json:"software"`
	NetDevs    []string  `json:"netdevs"`
	place
}

type redirect struct {
	PCI  p2p.Addr `json:"pci"`
	Bits string   `json:"bits"`
}

// decision is the kernel's.
type decision struct {
	Type      string           `json:"map_type"`
	Supported placement.Answer `json:"supported"`
	Steps     *int             `json:"steps"`
	Distance  *int             `json:"distance"`
	Common    *p2p.Addr        `json:"common"`
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
	GPU      string     `json:"gpu"`
	NIC      string     `json:"nic"`
	Outcome  string     `json:"outcome"`
	Counts   bool       `json:"counts"`
	Errno    *cli.Errno `json:"errno,omitempty"`
	Stage    string     `json:"stage,omitempty"`
	Address  string     `json:"address"`
	Decision decision   `json:"decision"`
	NCCL     string     `json:"nccl"`
	NVML     string     `json:"nvml"`
	Why      []string   `json:"why"`
	Notes    []string   `json:"notes"`
	Remedy   *remedy    `json:"remedy"`
	Proof    *proof     `json:"proof"`
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
	Machine machine  `json:"machine"`
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

	// Of the run that a file has, for not all is in the result: its status and
	// its errors.
	ran  int
	said []string
}

// process is the one that --pid names.
type process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

func processOf(m *p2p.Machine) *process {
	if pid, name := m.Process(); pid != 0 {
		return &process{pid, name}
	}
	return nil
}

func (a *app) machineOf(m *p2p.Machine) machine {
	return machine{Notes: a.notes, Kernel: m.Kernel.Release, P2PDMA: m.Kernel.P2PDMA, MoveNotify: m.Kernel.MoveNotify, Config: m.Kernel.Source, CPU: m.CPU.String()}
}

// check predicts for all pairs, proves them if that was asked for, and carries
// out the checks.
func (a *app) check(m *p2p.Machine, gpus []p2p.GPU, nics []p2p.NIC) (result, error) {
	if !a.proving {
		return a.checkAnd(nil, m, gpus, nics)
	}
	return a.checkAnd(a.prove, m, gpus, nics)
}

func (a *app) checkAnd(prove func(*p2p.Machine, []p2p.Pair) (*liveRun, error), m *p2p.Machine, gpus []p2p.GPU, nics []p2p.NIC) (result, error) {
	r := checkResult{Machine: a.machineOf(m), Process: processOf(m), GPUs: []gpu{}, NICs: []nic{}, Pairs: []pair{}}
	var pairs []p2p.Pair
	for _, g := range gpus {
		r.GPUs = append(r.GPUs, gpuOf(m, g))
		for _, n := range nics {
			pairs = append(pairs, m.Pair(g, n))
		}
	}
	m.Combine(pairs)
	for _, whole := range pairs {
		p := pairOf(whole)
		r.Pairs = append(r.Pairs, p)
		r.Summary.add(p)
	}
	for _, n := range nics {
		r.NICs = append(r.NICs, nicOf(m, n))
	}
	var unproven error
	if prove != nil {
		r.Live, unproven = prove(m, pairs)
		for i, p := range pairs {
			r.Pairs[i].Proof = proofOf(p)
			r.Live.add(r.Pairs[i])
		}
	}
	subject := p2p.Subject{GPUs: gpus, NICs: nics, Pairs: pairs, Skip: a.skip}
	if here(a.source) {
		subject.Live = a.live
	}
	r.Checks = findingsOf(m.Check(subject))
	r.Tally = tallyOf(r.Checks)
	r.Drift = []drift{}
	if a.baseline != "" {
		before, err := readResult(a.baseline)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		r.Baseline = a.baseline
		r.Drift, r.Uncompared = drifted(before, r)
	}
	return r, errors.Join(nothing(gpus, nics), unproven)
}

// nothing says what is missing to make a pair.
func nothing(gpus []p2p.GPU, nics []p2p.NIC) error {
	var errs []error
	if len(gpus) == 0 {
		errs = append(errs, &cli.Unavailable{Err: errors.New("no GPU was found")})
	}
	if len(nics) == 0 {
		errs = append(errs, &cli.Unavailable{Err: errors.New("no RDMA device was found")})
	}
	return errors.Join(errs...)
}

func gpuOf(m *p2p.Machine, g p2p.GPU) gpu {
	e := g.Exporter
	return gpu{g.Name, e.PCI, e.Driver, e.Class.String(), e.OutOfTree, e.Class != p2p.ClassSystem, placeOf(m, e.PCI)}
}

func nicOf(m *p2p.Machine, n p2p.NIC) nic {
	i := n.Importer
	return nic{n.Name, i.PCI, i.Driver, i.Kind.String(), i.PeerToPeer, i.ByCPU, n.Software, list(n.NetDevs), placeOf(m, i.PCI)}
}

// placeOf finds a device. That of one that cannot be read is not known, which
// the checks say.
func placeOf(m *p2p.Machine, a *p2p.Addr) place {
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
		GPU: p.GPU.Name, NIC: p.NIC.Name, Counts: p.GPU.Exporter.Class != p2p.ClassSystem,
		Outcome: p.Prediction.Outcome.String(), Stage: string(p.Prediction.Stage), Address: p.Prediction.Address.String(),
		Decision: decisionOf(p.Prediction.Decision), NCCL: p.Letters.NCCL, NVML: p.Letters.NVML,
		Why: list(p.Prediction.Why), Notes: list(p.Prediction.Notes),
	}
	if e := p.Prediction.Errno; e != 0 {
		out.Errno = &cli.Errno{Name: errno.Name(e), Number: int(e)}
	}
	if p.Remedy != nil {
		out.Remedy = (*remedy)(p.Remedy)
	}
	return out
}

func decisionOf(d p2p.Decision) decision {
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
	case p.Outcome == p2p.Direct.String():
		s.Direct++
	case p.Outcome == p2p.Staged.String():
		s.Staged++
	case p.Outcome == p2p.Refused.String():
		s.Refused++
	default:
		s.Unknown++
	}
}

func (r checkResult) status() int { return worse(r.ran, r.found()) }

// found is the status of what was found.
func (r checkResult) found() int {
	var s summary
	for _, p := range r.Pairs {
		p.Outcome = r.now(p)
		s.add(p)
	}
	switch {
	case s.Staged+s.Refused > 0 || slices.ContainsFunc(r.Drift, drift.worse) || r.broken():
		return cli.ExitFailed
	case r.Tally.Fail == 0 && (s.Unknown > 0 || s.Direct == 0):
		return cli.ExitUnavailable
	}
	return r.Tally.status()
}
