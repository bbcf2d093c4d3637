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

// unbroken stands for a space at which no line is broken: one inside a fact.
const unbroken = "\x00"

// Text writes the tree as text, then a table of the pairs. With verbose it also has
// the facts that have their usual values. Its errors are those of w.
func (r Topology) Text(w io.Writer, verbose bool) error {
	var b strings.Builder
	machine, notes, _ := strings.Cut(fmt.Sprint(r.Machine), "\n")
	if err := human.Line(of(&b, w), machine, "", "    "); err != nil {
		return err
	}
	if notes != "" {
		fmt.Fprintln(&b, notes)
	}
	bus := ""
	for i, f := range r.Functions {
		if f.Bus != bus {
			bus = f.Bus
			fmt.Fprintf(&b, "\n%s\n", bus)
		}
		first, rest := r.branch(i)
		parts := f.parts(verbose)
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], " ", unbroken)
		}
		if err := human.Line(of(&b, w), strings.Join(parts, ", "), first, rest+"  "); err != nil {
			return err
		}
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
	if _, err := io.WriteString(w, strings.ReplaceAll(b.String(), unbroken, " ")); err != nil || len(r.Pairs) == 0 {
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
	return human.Table(w, rows, "STEPS", "NVIDIA-SMI")
}

// of returns a buffer's writer that is as wide as w is.
func of(b *strings.Builder, w io.Writer) io.Writer {
	if _, wide := w.(human.Wide); wide {
		return human.Wide{Writer: b}
	}
	return b
}

// branch draws the lines that lead to function i, and those that go on beside a second line of its
// text.
func (r Topology) branch(i int) (first, rest string) {
	f := r.Functions[i]
	depth := len(f.path()) - 1
	var b, beside strings.Builder
	for level := range depth + 1 {
		more := r.continues(i, level)
		if more {
			beside.WriteString("|  ")
		} else {
			beside.WriteString("   ")
		}
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
	return b.String(), beside.String()
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
