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
	Index        int     `json:"index"`
	Start        uint64  `json:"start"`
	Size         uint64  `json:"size"`
	Prefetchable bool    `json:"prefetchable"`
	Largest      *uint64 `json:"largest"`
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
	// What the port above could.
	PortMaxSpeed string `json:"port_max_speed"`
	PortMaxWidth string `json:"port_max_width"`
}

// way is how fast the links between a GPU and a NIC are.
type way struct {
	BytesPerS     uint64   `json:"bytes_per_s"`
	Slowest       p2p.Addr `json:"slowest"`
	EndsBytesPerS uint64   `json:"ends_bytes_per_s"`
}

// pairWay is a pair, and the way between the two.
type pairWay struct {
	pair
	Way *way `json:"way"`
}

// function is a GPU, a NIC, an NVMe controller, a physical function of one of
// these, or a bridge above one.
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
	PF     *p2p.Addr  `json:"pf"`
	IOMMU  string     `json:"iommu"`
	Group  *string    `json:"iommu_group"`
	ACS    acs        `json:"acs"`
	Link   link       `json:"link"`
	BARs   []bar      `json:"bars"`
	CMB    *uint64    `json:"cmb"`
	Peer   *uint64    `json:"peer_memory"`
}

type topoResult struct {
	Machine   machine    `json:"machine"`
	Functions []function `json:"functions"` // a bridge before what is below it
	OffPCI    []string   `json:"off_pci"`
	Pairs     []pairWay  `json:"pairs"`
	empty     bool
	missing   error // to make a pair
}

// topo reads GPUs, NICs, NVMe controllers, and the bridges above them.
func (a *app) topo(m *p2p.Machine, gpus []p2p.GPU, nics []p2p.NIC) (result, error) {
	r := topoResult{Machine: a.machineOf(m), Functions: []function{}, OffPCI: []string{}, Pairs: []pairWay{}, empty: len(gpus)+len(nics) == 0}
	seen := map[p2p.Addr]*function{}
	known := map[p2p.Addr]p2p.Function{}
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
		f := functionOf(m, p)
		seen[a], known[a] = &f, p
		for i, up := range p.Upstream {
			if above := read(up); i == 0 && above != nil && (!p.Bridge || p.Port == "upstream port") { // the link of other ports leads down
				f.Link.PortMaxSpeed, f.Link.PortMaxWidth = above.Link.MaxSpeed, above.Link.MaxWidth
			}
		}
		if p.PF != nil {
			read(*p.PF)
		}
		return &f
	}
	again := func(a p2p.Addr) (p2p.Function, error) {
		if p, ok := known[a]; ok {
			return p, nil
		}
		return m.Function(a)
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
			p := m.Pair(g, n)
			r.Pairs = append(r.Pairs, pairWay{pairOf(p), wayOf(m.Way(p, again))})
		}
	}
	if len(a.gpu)+len(a.nic) == 0 { // else it is these that somebody wants to see
		disks, err := m.NVMes()
		if err != nil {
			errs = append(errs, &cli.Unavailable{Err: err})
		}
		for _, d := range disks {
			place(&d.PCI, "NVMe", d.Name)
			if f := seen[d.PCI]; f != nil && d.CMBKnown {
				f.CMB = &d.CMB
			}
			if f := seen[d.PCI]; f != nil && d.Peer > 0 {
				f.Peer = &d.Peer
			}
		}
	}
	for _, f := range seen {
		r.Functions = append(r.Functions, *f)
	}
	slices.SortFunc(r.Functions, inTree)
	r.missing = nothing(gpus, nics)
	return r, errors.Join(append(errs, r.missing)...)
}

// inTree orders functions so that what is below a bridge follows it.
func inTree(x, y function) int {
	return cmp.Or(cmp.Compare(x.Bus, y.Bus), slices.Compare(x.path(), y.path()))
}

// path is the way from the root to the function. That to a virtual function leads
// over its physical one, as it does for the kernel.
func (f function) path() []string {
	out := []string{f.PCI.String()}
	if f.PF != nil {
		out = []string{f.PF.String(), out[0]}
	}
	for _, up := range f.Above {
		out = append([]string{up.String()}, out...)
	}
	return out
}

func wayOf(w p2p.Way, known bool) *way {
	if !known {
		return nil
	}
	return &way{w.Rate, w.Slowest, w.Ends}
}

func functionOf(m *p2p.Machine, p p2p.Function) function {
	f := function{
		PCI: p.PCI, Bus: p.Bus, Above: list(p.Upstream), Role: "other", Names: []string{}, Port: p.Port, PF: p.PF,
		Vendor: fmt.Sprintf("%04x", p.Vendor), Device: fmt.Sprintf("%04x", p.Device), Driver: p.Driver, IOMMU: p.IOMMU,
		ACS:  acs{Known: p.ACSErr == nil, Present: p.ACS.Present, Control: uint16(p.ACS.Ctrl), Redirects: p.ACS.Redirects().String()},
		Link: link{Speed: p.Speed, Width: p.Width, MaxSpeed: p.MaxSpeed, MaxWidth: p.MaxWidth}, BARs: []bar{},
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
	if p.GroupErr == nil && p.Group != "" {
		f.Group = &p.Group
	}
	for _, b := range p.BARs {
		shown := bar{Index: b.Index, Start: b.Start, Size: b.Size, Prefetchable: b.Prefetchable}
		if size, ok := m.Resizable(p.PCI, b.Index); ok {
			shown.Largest = &size
		}
		f.BARs = append(f.BARs, shown)
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
		return r.svg(w, a.verbose)
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	bus := ""
	for i, f := range r.Functions {
		if f.Bus != bus {
			bus = f.Bus
			fmt.Fprintf(&b, "\n%s\n", bus)
		}
		fmt.Fprintf(&b, "%s%s\n", r.branch(i), f.line(a.verbose))
	}
	if len(r.OffPCI) > 0 {
		fmt.Fprintf(&b, "\non no PCI bus: %s\n", strings.Join(r.OffPCI, ", "))
	}
	if r.missing != nil {
		fmt.Fprintf(&b, "\nno pair: %s\n", strings.ReplaceAll(r.missing.Error(), "\n", ", "))
	}
	if _, err := io.WriteString(w, b.String()); err != nil || len(r.Pairs) == 0 {
		return err
	}
	rows := [][]string{{"GPU", "NIC", "KERNEL", "STEPS", "NCCL", "NVIDIA-SMI", "LINKS", "PREDICTION"}}
	for _, p := range r.Pairs {
		steps := ""
		if p.Decision.Steps != nil {
			steps = fmt.Sprint(*p.Decision.Steps)
		}
		prediction := p.Outcome
		if !p.Counts {
			prediction = "" // as in the matrix
		}
		rows = append(rows, []string{p.GPU, p.NIC, p.Decision.Type, steps, p.NCCL, p.NVML, p.Way.String(), prediction})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return cli.Table(w, rows)
}

// branch draws the lines that lead to function i.
func (r topoResult) branch(i int) string {
	f := r.Functions[i]
	depth := len(f.path()) - 1
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
