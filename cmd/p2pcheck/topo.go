// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
)

type bar struct {
	Index int    `json:"index"`
	Start uint64 `json:"start"`
	Size  uint64 `json:"size"`
}

type acs struct {
	Known     bool   `json:"known"`
	Present   bool   `json:"present"`
	Control   uint16 `json:"control"`
	Redirects string `json:"redirects"`
	Error     string `json:"error,omitempty"`
}

type link struct {
	Speed    string `json:"speed"`
	Width    string `json:"width"`
	MaxSpeed string `json:"max_speed"`
	MaxWidth string `json:"max_width"`
}

// function is a GPU, a NIC, or a bridge above one.
type function struct {
	PCI    p2p.Addr   `json:"pci"`
	Bus    string     `json:"bus"`
	Above  []p2p.Addr `json:"above"`
	Role   string     `json:"role"`
	Names  []string   `json:"names"`
	Port   string     `json:"port"`
	Vendor string     `json:"vendor"`
	Device string     `json:"device"`
	Driver string     `json:"driver"`
	NUMA   *int       `json:"numa_node"`
	IOMMU  string     `json:"iommu"`
	ACS    acs        `json:"acs"`
	Link   link       `json:"link"`
	BARs   []bar      `json:"bars"`
}

type topoResult struct {
	Machine   machine    `json:"machine"`
	Functions []function `json:"functions"` // a bridge before what is below it
	OffPCI    []string   `json:"off_pci"`
	Pairs     []pair     `json:"pairs"`
	empty     bool
}

// topo reads GPUs, NICs, and the bridges above them.
func topo(m *p2p.Machine, gpus []p2p.GPU, nics []p2p.NIC) (result, error) {
	r := topoResult{Machine: machineOf(m), Functions: []function{}, OffPCI: []string{}, Pairs: []pair{}, empty: len(gpus)+len(nics) == 0}
	seen := map[p2p.Addr]*function{}
	var errs []error
	var read func(a p2p.Addr) *function
	read = func(a p2p.Addr) *function {
		if f := seen[a]; f != nil {
			return f
		}
		p, err := m.Function(a)
		if err != nil {
			errs = append(errs, &cli.Unavailable{Err: err})
			return nil
		}
		f := functionOf(p)
		seen[a] = &f
		for _, up := range p.Upstream {
			read(up)
		}
		return &f
	}
	place := func(a *p2p.Addr, role, name string) {
		if a == nil {
			r.OffPCI = append(r.OffPCI, name)
		} else if f := read(*a); f != nil {
			f.Role = role
			f.Names = append(f.Names, name)
		}
	}
	for _, n := range nics {
		place(n.Importer.PCI, "NIC", n.Name)
	}
	for _, g := range gpus {
		place(g.Exporter.PCI, "GPU", g.Name)
		for _, n := range nics {
			r.Pairs = append(r.Pairs, pairOf(m.Pair(g, n)))
		}
	}
	for _, f := range seen {
		r.Functions = append(r.Functions, *f)
	}
	slices.SortFunc(r.Functions, inTree)
	return r, errors.Join(append(errs, nothing(gpus, nics))...)
}

// inTree orders functions so that what is below a bridge follows it.
func inTree(x, y function) int {
	return cmp.Or(cmp.Compare(x.Bus, y.Bus), slices.Compare(x.path(), y.path()))
}

// path is the way from the root to the function.
func (f function) path() []string {
	out := []string{f.PCI.String()}
	for _, up := range f.Above {
		out = append([]string{up.String()}, out...)
	}
	return out
}

func functionOf(p p2p.Function) function {
	f := function{
		PCI: p.PCI, Bus: p.Bus, Above: list(p.Upstream), Role: "other", Names: []string{}, Port: p.Port,
		Vendor: fmt.Sprintf("%04x", p.Vendor), Device: fmt.Sprintf("%04x", p.Device), Driver: p.Driver, IOMMU: p.IOMMU,
		ACS:  acs{Known: p.ACSErr == nil, Present: p.ACS.Present, Control: uint16(p.ACS.Ctrl), Redirects: p.ACS.Redirects().String()},
		Link: link{p.Speed, p.Width, p.MaxSpeed, p.MaxWidth}, BARs: []bar{},
	}
	if p.Bridge {
		f.Role = "bridge"
	}
	if p.NUMANode >= 0 {
		f.NUMA = &p.NUMANode
	}
	if p.ACSErr != nil {
		f.ACS.Error, f.ACS.Redirects = p.ACSErr.Error(), ""
	}
	if p.IOMMUErr != nil {
		f.IOMMU = "unknown"
	} else if p.IOMMU == "" {
		f.IOMMU = "none"
	}
	for _, b := range p.BARs {
		f.BARs = append(f.BARs, bar(b))
	}
	return f
}

func (r topoResult) status() int {
	if r.empty {
		return cli.ExitUnavailable
	}
	return cli.ExitOK
}

func (r topoResult) text(w io.Writer, a *app) error {
	if a.svg {
		return r.svg(w)
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	bus := ""
	for i, f := range r.Functions {
		if f.Bus != bus {
			bus = f.Bus
			fmt.Fprintf(&b, "\n%s\n", bus)
		}
		fmt.Fprintf(&b, "%s%s\n", r.branch(i), f)
	}
	if len(r.OffPCI) > 0 {
		fmt.Fprintf(&b, "\non no PCI bus: %s\n", strings.Join(r.OffPCI, ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil || len(r.Pairs) == 0 {
		return err
	}
	rows := [][]string{{"GPU", "NIC", "KERNEL", "STEPS", "NCCL", "NVIDIA-SMI", "PREDICTION"}}
	for _, p := range r.Pairs {
		steps := ""
		if p.Decision.Steps != nil {
			steps = fmt.Sprint(*p.Decision.Steps)
		}
		rows = append(rows, []string{p.GPU, p.NIC, p.Decision.Type, steps, p.NCCL, p.NVML, p.Outcome})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return cli.Table(w, rows)
}

// branch draws the lines that lead to function i.
func (r topoResult) branch(i int) string {
	f := r.Functions[i]
	depth := len(f.Above)
	var b strings.Builder
	for level := range depth + 1 {
		more := r.continues(i, level)
		switch {
		case level < depth && more:
			b.WriteString("|  ")
		case level < depth:
			b.WriteString("   ")
		case more:
			b.WriteString("+- ")
		default:
			b.WriteString("`- ")
		}
	}
	return b.String()
}

// continues reports whether another function follows at a level, below the same
// bridge as function i is.
func (r topoResult) continues(i, level int) bool {
	way := r.Functions[i].path()[:level]
	for _, f := range r.Functions[i+1:] {
		other := f.path()
		if f.Bus != r.Functions[i].Bus || len(other) <= level || !slices.Equal(other[:level], way) {
			return false
		}
		if other[level] != r.Functions[i].path()[level] {
			return true
		}
	}
	return false
}

// String is the line of a function: what it is, then what decides.
func (f function) String() string {
	kind := f.Port
	if f.Role != "bridge" {
		kind = strings.TrimSpace(f.Role + " " + f.Driver)
		if f.Role == "NIC" {
			kind = fmt.Sprintf("NIC %s (%s)", strings.Join(f.Names, ", "), f.Driver)
		}
	} else if kind == "" {
		kind = "bridge"
	}
	parts := []string{fmt.Sprintf("%v %s %s:%s", f.PCI, kind, f.Vendor, f.Device), f.ACS.String()}
	if f.Link.Speed != "" {
		parts = append(parts, f.Link.String())
	}
	if f.Role != "bridge" {
		parts = append(parts, "IOMMU "+f.IOMMU)
		if f.NUMA != nil {
			parts = append(parts, fmt.Sprintf("node %d", *f.NUMA))
		}
		for _, b := range f.BARs {
			size := cli.Size(b.Size)
			parts = append(parts, fmt.Sprintf("BAR %d %s", b.Index, &size))
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func (a acs) String() string {
	switch {
	case !a.Known:
		return "ACS unknown"
	case !a.Present:
		return ""
	case a.Redirects == "none":
		return "ACS does not redirect"
	}
	return "ACS " + a.Redirects
}

func (l link) String() string {
	text := strings.TrimSuffix(l.Speed, " PCIe") + " x" + l.Width
	if l.Speed != l.MaxSpeed && l.MaxSpeed != "" || l.Width != l.MaxWidth && l.MaxWidth != "" {
		text += fmt.Sprintf(" of %s x%s", strings.TrimSuffix(l.MaxSpeed, " PCIe"), l.MaxWidth)
	}
	return text
}
