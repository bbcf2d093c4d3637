// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p"
)

// look is how an outcome appears; in the order in which pairs are told.
type look struct {
	outcome p2p.Outcome
	word    string
	color   string // SGR
}

var looks = []look{
	{p2p.Refused, "REFUSED", "31"},
	{p2p.Staged, "STAGED", "31"},
	{p2p.OutcomeUnknown, "?", "33"},
	{p2p.Direct, "direct", "32"},
}

func lookOf(outcome string) look {
	i := slices.IndexFunc(looks, func(l look) bool { return l.outcome.String() == outcome })
	return looks[i]
}

func (a *app) paint(color, text string) string {
	if !a.color || color == "" {
		return text
	}
	esc := "\x1b" + a.mark
	return esc + "[" + color + "m" + text + esc + "[0m"
}

// text is the matrix, then the reasons, the worst first.
func (r checkResult) text(w io.Writer, a *app) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	if r.Process != nil {
		fmt.Fprintf(&b, "%v: limits, capabilities, control group, /dev/shm and environment are its own\n", r.Process)
	}
	r.contradictions(&b, a)
	if len(r.Pairs) > 0 {
		b.WriteString("\n")
		r.matrix(&b, a, predictedCell)
		if slices.ContainsFunc(r.Pairs, pair.overRoot) {
			fmt.Fprintf(&b, "%s %s\n", rootMark, rootLegend)
		}
	}
	told := map[remedy]bool{}
	for _, l := range looks {
		if l.outcome != p2p.Direct || a.verbose {
			r.reasons(&b, a, l, told)
		}
	}
	if r.Summary.all() == 0 {
		r.noPairText(&b)
	} else {
		fmt.Fprintf(&b, "\n%s\n", r.Summary)
	}
	r.liveText(&b, a)
	if r.Baseline != "" {
		fmt.Fprintf(&b, "\nSince %s: %s\n", r.Baseline, driftHead(r.Drift))
		driftText(&b, a, r.Drift)
		uncomparedText(&b, r.Uncompared)
	}
	r.checksText(&b, a, told)
	if len(r.Checks) > 0 {
		fmt.Fprintf(&b, "\n%s\n", r.tallyText(a))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m machine) String() string {
	kernel := "kernel unknown"
	if m.Kernel != "" {
		kernel = "Linux " + m.Kernel
	}
	text := fmt.Sprintf("%s, %s; CONFIG_PCI_P2PDMA: %v (%s)", kernel, m.CPU, m.P2PDMA, m.Config)
	for _, note := range m.Notes {
		text += "\n" + folded(note)
	}
	return text
}

func (p process) String() string {
	if p.Name == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}

func (s summary) String() string {
	text := fmt.Sprintf("%s: %d direct, %d staged, %d refused, %d unknown", plural(s.all(), "pair"), s.Direct, s.Staged, s.Refused, s.Unknown)
	if s.Outside > 0 {
		text += fmt.Sprintf("; %d of devices without memory of their own, which do not count", s.Outside)
	}
	return text
}

// noPair says why there is no pair that counts.
func (r checkResult) noPair() string {
	var missing []string
	switch {
	case len(r.GPUs) == 0:
		missing = append(missing, "no GPU")
	case counting(r.GPUs) == 0:
		missing = append(missing, "no GPU with memory of its own")
	}
	if len(r.NICs) == 0 {
		missing = append(missing, "no RDMA device")
	}
	return "no pair to check: " + strings.Join(missing, ", ")
}

// noPairText says that nothing was predicted, and which devices there are: what
// passes says little then.
func (r checkResult) noPairText(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", r.noPair())
	var gpus, nics []string
	for _, g := range r.GPUs {
		gpus = append(gpus, strings.TrimSpace(g.Name+" "+label(g)))
	}
	for _, n := range r.NICs {
		nics = append(nics, strings.TrimSpace(n.Name+" "+n.Driver))
	}
	fmt.Fprintf(b, "  GPUs: %s\n  NICs: %s\n", orNone(gpus), orNone(nics))
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// cell is a word of the matrix. Colours take no room in it.
type cell struct{ text, color string }

// outsideText stands for a pair that does not count.
const outsideText = "-"

// predictedCell is a pair in the matrix, with NCCL's letters.
func predictedCell(p pair) cell {
	if !p.Counts {
		return cell{outsideText, ""}
	}
	l := lookOf(p.Outcome)
	if p.overRoot() {
		return cell{l.word + rootMark + p.NCCL, "33"}
	}
	return cell{strings.TrimSpace(l.word + " " + p.NCCL), l.color}
}

// rootMark is of a pair that is direct, and whose traffic goes over the root all the
// same. It takes the place of a space.
const (
	rootMark   = "^"
	rootLegend = "direct, but over the root: a port on the way redirects (P2P-ACS-LIST)"
)

func (p pair) overRoot() bool {
	return p.Counts && p.Outcome == p2p.Direct.String() && len(p.Decision.Redirects) > 0
}

// screen is how wide a matrix may be, in columns, before it is drawn closer together.
const screen = 100

// matrix has a row for each GPU and a column for each NIC.
func (r checkResult) matrix(b *strings.Builder, a *app, of func(pair) cell) {
	head := []cell{{"GPU", ""}}
	for _, n := range r.NICs {
		head = append(head, cell{n.Name, ""})
	}
	rows, short := [][]cell{head}, r.shortNames()
	next := 0
	for _, g := range r.GPUs {
		row := []cell{{strings.TrimSpace(g.Name + " " + label(g)), ""}}
		for range r.NICs {
			row = append(row, of(r.Pairs[next]))
			next++
		}
		rows = append(rows, row)
	}
	gap, wide := 2, widths(rows)
	if total(wide, gap) > screen {
		gap = 1
		for i := range rows {
			rows[i][0].text = short[i]
		}
		wide = widths(rows)
	}
	for _, row := range rows {
		for i, c := range row {
			b.WriteString(a.paint(c.color, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", wide[i]-len(c.text)+gap))
			}
		}
		b.WriteString("\n")
	}
}

// shortNames are the first column of a matrix that is drawn closer together: PCI
// addresses as lspci has them, and the driver of the first GPU in the head for all
// that have it.
func (r checkResult) shortNames() []string {
	if len(r.GPUs) == 0 {
		return nil
	}
	domain := "0000:"
	if slices.ContainsFunc(r.GPUs, func(g gpu) bool { return g.PCI != nil && !strings.HasPrefix(g.Name, domain) }) {
		domain = ""
	}
	driver := label(r.GPUs[0])
	out := []string{strings.TrimSpace("GPU " + driver)}
	for _, g := range r.GPUs {
		name := strings.TrimPrefix(g.Name, domain)
		if l := label(g); l != driver {
			name = strings.TrimSpace(name + " " + l)
		}
		out = append(out, name)
	}
	return out
}

// widths are those of the columns.
func widths(rows [][]cell) []int {
	out := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			out[i] = max(out[i], len(c.text))
		}
	}
	return out
}

// total is how wide columns are together.
func total(wide []int, gap int) int {
	sum := gap * (len(wide) - 1)
	for _, w := range wide {
		sum += w
	}
	return sum
}

// label is a GPU's driver, and of a software GPU the driver whose ways it has.
func label(g gpu) string {
	switch {
	case withoutName(g.Driver) != "":
		return withoutName(g.Driver)
	case g.Driver == g.Name:
		return ""
	case g.Driver == "softgpu":
		return fmt.Sprintf("softgpu (%s)", g.Exporter)
	}
	return g.Driver
}

// withoutName is what stands in the place of a driver that has no name.
func withoutName(driver string) string {
	switch driver {
	case "":
		return "(no driver)"
	case p2p.UnknownDriver:
		return "(driver unknown)"
	}
	return ""
}

// shownPairs is how many pairs of a group are named without -v.
const shownPairs = 4

// reasons tells the pairs of one outcome. Those that have reasons and remedy in
// common are told together.
func (r checkResult) reasons(b *strings.Builder, a *app, l look, told map[remedy]bool) {
	pairs := slices.DeleteFunc(slices.Clone(r.Pairs), func(p pair) bool {
		return p.Outcome != l.outcome.String() || !p.Counts && !a.verbose
	})
	for _, group := range grouped(pairs, a.verbose) {
		ids := ""
		if of := r.toldOf(group); len(of) > 0 {
			ids = " (" + strings.Join(of, ", ") + ")"
		}
		fmt.Fprintf(b, "\n%s  %s%s\n", a.paint(l.color, l.headline(group[0])), names(group, a.verbose), ids)
		whyText(b, group, a.verbose)
		if a.verbose {
			for _, note := range group[0].Notes {
				fmt.Fprintf(b, "  note: %s\n", note)
			}
		}
		remedyOf(group).text(b, told)
	}
}

func (l look) headline(p pair) string {
	switch {
	case p.Errno != nil:
		return fmt.Sprintf("%s with %s by %s", l.word, p.Errno.Name, p.Stage)
	case l.outcome == p2p.OutcomeUnknown:
		return "UNKNOWN"
	}
	return l.word
}
