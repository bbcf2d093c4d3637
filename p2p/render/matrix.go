// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// noPair says why there is no pair that counts.
func noPair(r result.Run) string {
	if n := len(r.Unread); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(", and %d more", n-1)
		}
		return fmt.Sprintf("no pair to check: the devices could not all be read (%s%s)", r.Unread[0], more)
	}
	var missing []string
	switch {
	case len(r.GPUs) == 0:
		missing = append(missing, "no GPU")
	case result.Counting(r.GPUs) == 0:
		missing = append(missing, "no GPU with memory of its own")
	}
	switch {
	case len(r.NICs) > 0:
	case len(r.GuestNICs) > 0:
		missing = append(missing, "no RDMA device on the host, which gives its NICs to guests")
	default:
		missing = append(missing, "no RDMA device")
	}
	return "no pair to check: " + strings.Join(missing, ", ")
}

// noPairText says that there is no prediction, and which devices there are.
func noPairText(b *strings.Builder, s Style, r result.Run) {
	b.WriteString("\n")
	s.fold(b, "", margin, noPair(r))
	var gpus, nics []string
	for _, g := range r.GPUs {
		gpus = append(gpus, strings.TrimSpace(g.Name+" "+label(g)))
	}
	for _, n := range r.NICs {
		nics = append(nics, strings.TrimSpace(n.Name+" "+n.Driver))
	}
	for _, n := range r.GuestNICs {
		nics = append(nics, n+" of a guest")
	}
	read := ""
	if len(r.Unread) > 0 {
		read = " that could be read"
	}
	s.label(b, "GPUs: ", orNone(gpus, read))
	s.label(b, "NICs: ", orNone(nics, read))
}

func orNone(names []string, read string) string {
	if len(names) == 0 {
		return "none" + read
	}
	return strings.Join(names, ", ")
}

// cell is a word of the matrix, and its colour.
type cell struct{ text, color string }

// Outside is the matrix entry of a pair that does not count.
const Outside = "-"

// predictedCell is a pair in the matrix, with NCCL's letters.
func predictedCell(p result.Pair) cell {
	if !p.Counts {
		return cell{Outside, ""}
	}
	l := lookOf(p.Outcome)
	if p.Slow() {
		return cell{l.word + SlowMark + p.NCCL, "33"}
	}
	return cell{strings.TrimSpace(l.word + " " + p.NCCL), l.color}
}

// Predicted returns the entry of a pair in the matrix of predictions, without colour.
func Predicted(p result.Pair) string { return predictedCell(p).text }

// SlowMark marks a pair that is direct and slower than it could be. It takes the place of a space.
// SlowLegend says what it means.
const (
	SlowMark   = "^"
	SlowLegend = "direct, and slower than it could be: `p2pcheck why GPU NIC` says why"
)

// matrix has a row for each GPU and a column for each NIC. One that is too wide for a screen has
// its columns closer together, and what does not fit then stands below it.
func matrix(b *strings.Builder, s Style, r result.Run, of func(result.Pair) cell) {
	head := []cell{{"GPU", ""}}
	for _, n := range r.NICs {
		head = append(head, cell{n.Name, ""})
	}
	rows, short := [][]cell{head}, shortNames(r.GPUs)
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
	if total(wide, gap) > human.Columns {
		gap = 1
		for i := range rows {
			rows[i][0].text = short[i]
		}
		wide = widths(rows)
	}
	for from := 1; ; {
		to := fitting(wide, gap, from)
		for _, row := range rows {
			b.WriteString(s.Paint(row[0].color, row[0].text))
			last := wide[0] - len(row[0].text) // spaces behind the cell
			for i := from; i < to; i++ {
				b.WriteString(strings.Repeat(" ", last+gap) + s.Paint(row[i].color, row[i].text))
				last = wide[i] - len(row[i].text)
			}
			b.WriteString("\n")
		}
		if from = to; from >= len(wide) {
			return
		}
		b.WriteString("\n")
	}
}

// fitting returns the column behind the last that fits a screen, beside the first column and those
// from one on. One column is taken in any case.
func fitting(wide []int, gap, from int) int {
	sum := wide[0]
	for i := from; i < len(wide); i++ {
		if sum += gap + wide[i]; sum > human.Columns && i > from {
			return i
		}
	}
	return len(wide)
}

// shortNames are the first column of a matrix whose columns are close together. PCI addresses are
// written as lspci writes them. The head has the driver of the first GPU, and the rows of other
// GPUs with that driver leave it out.
func shortNames(gpus []result.GPU) []string {
	if len(gpus) == 0 {
		return nil
	}
	domain := "0000:"
	if slices.ContainsFunc(gpus, func(g result.GPU) bool { return g.PCI != nil && !strings.HasPrefix(g.Name, domain) }) {
		domain = ""
	}
	driver := label(gpus[0])
	out := []string{strings.TrimSpace("GPU " + driver)}
	for _, g := range gpus {
		name := strings.TrimPrefix(g.Name, domain)
		if l := label(g); l != driver {
			name = strings.TrimSpace(name + " " + l)
		}
		out = append(out, name)
	}
	return out
}

// widths returns the widths of the columns.
func widths(rows [][]cell) []int {
	out := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			out[i] = max(out[i], len(c.text))
		}
	}
	return out
}

// total returns how wide the columns are together.
func total(wide []int, gap int) int {
	sum := gap * (len(wide) - 1)
	for _, w := range wide {
		sum += w
	}
	return sum
}

// label is a GPU's driver. A software GPU has the driver that it behaves like beside it.
func label(g result.GPU) string {
	switch {
	case NoDriver(g.Driver) != "":
		return NoDriver(g.Driver)
	case g.Driver == g.Name:
		return ""
	case g.Driver == "softgpu":
		return fmt.Sprintf("softgpu (%s)", g.Exporter)
	}
	return g.Driver
}

// NoDriver returns words in place of a driver's name if the name is "" or not known; "" for any
// other driver.
func NoDriver(driver string) string {
	switch driver {
	case "":
		return "(no driver)"
	case drivers.UnknownDriver:
		return "(driver unknown)"
	}
	return ""
}
