// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/placement"
)

// Host has the facts of a machine that decide about all of its pairs.
type Host struct {
	Kernel     string           `json:"kernel"`      // the kernel's release; "" if it is not known
	P2PDMA     placement.Answer `json:"p2pdma"`      // whether the kernel has CONFIG_PCI_P2PDMA
	MoveNotify placement.Answer `json:"move_notify"` // whether the buffer of a dynamic importer stays unpinned
	// Config is the file in which the kernel's configuration was read, or why it was not read.
	Config string   `json:"config"`
	CPU    string   `json:"cpu"`             // the vendor and the family of the processor
	Notes  []string `json:"notes,omitempty"` // the facts that the text of --lspci lacks
}

// Run has the results of one run of p2pcheck.
type Run struct {
	Machine Host     `json:"machine"` // the facts that decide for all pairs
	Process *Process `json:"process"` // the process that --pid names; null without --pid
	GPUs    []GPU    `json:"gpus"`    // the GPUs that the run looked at
	NICs    []NIC    `json:"nics"`    // the RDMA devices that the run looked at
	// Unread are the errors of reading the devices. If there are any, the machine may have more
	// devices than the lists.
	Unread    []string `json:"unread,omitempty"`
	GuestNICs []string `json:"guest_nics,omitempty"` // the PCI addresses of the network functions that are given to guests
	Pairs     []Pair   `json:"pairs"`                // each GPU with each NIC, by GPU, then by NIC
	Summary   Summary  `json:"summary"`              // how many pairs have each outcome

	Live *Live `json:"live"` // the summary of --live; null without --live

	// Checks are what the checks found, in the order in which they ran. Devices of which a check says
	// the same are in one entry.
	Checks []Finding `json:"checks"`
	Tally  Tally     `json:"tally"` // how many checks have each result, by the worst that each found

	Baseline string  `json:"baseline,omitempty"` // the file of the earlier run that this one is compared with
	Drift    []Drift `json:"drift"`              // what differs from the earlier run, the worst first
	// Uncompared is how many checks are not compared, because only one of the two runs has their
	// result.
	Uncompared int `json:"uncompared,omitempty"`

	// Schema, Ran and Said are the schema, the exit status and the errors of a run that was
	// read from a file, where they are outside of the result.
	Schema string   `json:"-"`
	Ran    int      `json:"-"`
	Said   []string `json:"-"`
}

// Process is the process whose limits and environment the checks look at.
type Process struct {
	PID  int    `json:"pid"`  // the number of the process
	Name string `json:"name"` // the name of the process; "" if it is not known
}

func processOf(m *machine.Machine) *Process {
	if pid, name := m.Process(); pid != 0 {
		return &Process{pid, name}
	}
	return nil
}

// HostOf returns the facts of a machine that decide about all of its pairs.
func HostOf(m *machine.Machine) Host {
	return Host{Kernel: m.Kernel.Release, P2PDMA: m.Kernel.P2PDMA, MoveNotify: m.Kernel.MoveNotify, Config: m.Kernel.Source, CPU: m.CPU.String()}
}

// Missing names the kinds of devices that the machine lacks for a pair: a GPU, a NIC.
func Missing(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (out []string) {
	if len(gpus) == 0 {
		out = append(out, "no GPU was found")
	}
	switch {
	case len(nics) > 0:
	case len(p2p.GuestNICs(m)) > 0:
		out = append(out, "no RDMA device: the host gives its NICs to guests; run p2pcheck in the guest, too")
	default:
		out = append(out, "no RDMA device was found")
	}
	return out
}

// List returns s, or an empty slice in place of nil: JSON has an empty list then, not null.
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// New returns a run with the devices and the pairs of a machine. The pairs must be in the
// order of the GPUs, and then of the NICs. New writes escapes in place of control characters.
func New(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC, pairs []p2p.Pair) Run {
	r := Run{Machine: HostOf(m), Process: processOf(m), GPUs: []GPU{}, NICs: []NIC{}, Pairs: []Pair{}, Checks: []Finding{}, Drift: []Drift{}}
	for _, g := range gpus {
		r.GPUs = append(r.GPUs, gpuOf(m, g))
	}
	for _, n := range nics {
		r.NICs = append(r.NICs, nicOf(m, n))
	}
	for _, a := range p2p.GuestNICs(m) {
		r.GuestNICs = append(r.GuestNICs, a.String())
	}
	for _, whole := range pairs {
		p := PairOf(whole)
		r.Pairs = append(r.Pairs, p)
		r.Summary.add(p)
	}
	for _, part := range []any{&r.Machine, &r.GPUs, &r.NICs, r.Process} { // PairOf has cleaned the pairs
		terminal.Clean(part)
	}
	return r
}

// AddProofs sets Live, and counts the proofs of the run's pairs in live, which the caller must
// not use for another run.
func (r *Run) AddProofs(live *Live) {
	r.Live = live
	for _, p := range r.Pairs {
		r.Live.add(p)
	}
}

// AddFindings sets Checks and Tally to the findings of the checks, in place of earlier ones.
func (r *Run) AddFindings(all []check.Finding) {
	r.Checks = findingsOf(all)
	terminal.Clean(&r.Checks)
	r.Tally = TallyOf(r.Checks)
}

// String describes the machine: one line, and a line for each of Notes.
func (m Host) String() string {
	kernel := "kernel unknown"
	if m.Kernel != "" {
		kernel = "Linux " + m.Kernel
	}
	text := fmt.Sprintf("%s, %s; CONFIG_PCI_P2PDMA: %v (%s)", kernel, m.CPU, m.P2PDMA, m.Config)
	for _, note := range m.Notes {
		text += "\n" + human.Fold(note, "- ", "  ")
	}
	return text
}

// String returns the process's ID and name.
func (p Process) String() string {
	if p.Name == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}
