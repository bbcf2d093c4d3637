// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// inTree orders functions so that the functions below a bridge follow it.
func inTree(x, y Function) int {
	return cmp.Or(cmp.Compare(x.Bus, y.Bus), slices.Compare(x.path(), y.path()))
}

// path is the way from the root to the function. The way to a virtual function leads
// over its physical function, as it does for the kernel.
func (f Function) path() []string {
	out := []string{f.PCI.String()}
	if f.PF != nil {
		out = []string{f.PF.String(), out[0]}
	}
	for _, up := range f.Above {
		out = append([]string{up.String()}, out...)
	}
	return out
}

// Text writes the tree as text, then a table of the pairs. With verbose it also has
// the facts that have their usual values.
func (r Topology) Text(w io.Writer, verbose bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	bus := ""
	for i, f := range r.Functions {
		if f.Bus != bus {
			bus = f.Bus
			fmt.Fprintf(&b, "\n%s\n", bus)
		}
		fmt.Fprintf(&b, "%s%s\n", r.branch(i), f.line(verbose))
	}
	if len(r.OffPCI) > 0 {
		fmt.Fprintf(&b, "\non no PCI bus: %s\n", strings.Join(r.OffPCI, ", "))
	}
	if len(r.missing) > 0 {
		text := strings.Join(r.missing, ", ")
		if r.Partial {
			text += ", and not all devices could be read"
		}
		fmt.Fprintf(&b, "\nno pair: %s\n", text)
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
	return human.Table(w, rows)
}

// branch draws the lines that lead to function i.
func (r Topology) branch(i int) string {
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
func (r Topology) continues(i, level int) bool {
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
