// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh"
)

// mostNumbers is the number of columns up to which the matrix has rates. Beyond it a cell is one character.
const mostNumbers = 16

// signs are the states in the matrix.
var signs = map[mesh.State]string{mesh.Unreached: "X", mesh.Failed: "F", mesh.Lost: "L", mesh.Unknown: "?", mesh.Reached: "."}

// matrix has a row and a column for each node; with --wide, for each NIC.
func (r *Result) matrix(w io.Writer) error {
	names, cells := r.cells()
	if len(names) == 0 {
		return nil
	}
	what := "the lowest rate"
	if r.wide {
		what = "the rate"
	}
	const legend = "X not reached, F failed later, L lost with a node, ? not measured"
	if len(names) > mostNumbers {
		human.Line(w, "From row to column: . reached, "+legend, "", "    ")
		return r.signs(w, names, cells)
	}
	human.Line(w, fmt.Sprintf("From row to column, %s in MB/s; %s", what, legend), "", "    ")
	width := 1
	rows := make([][]string, len(cells))
	for i, row := range cells {
		for j, c := range row {
			text := signs[c.State]
			switch {
			case c.State == "":
				text = "-"
			case c.State == mesh.Reached && c.Rate > 0:
				text = strconv.FormatFloat(c.Rate/1e6, 'f', 1, 64)
			}
			rows[i] = append(rows[i], text)
			width = max(width, len(text), len(names[j].column))
		}
	}
	left := leftWidth(names)
	fmt.Fprintf(w, "%-*s", left, "")
	for _, n := range names {
		fmt.Fprintf(w, "  %*s", width, n.column)
	}
	fmt.Fprintln(w)
	for i, row := range rows {
		fmt.Fprintf(w, "%-*s", left, names[i].row)
		for _, text := range row {
			fmt.Fprintf(w, "  %*s", width, text)
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// signs writes a matrix of one character a cell, with a number above each tenth column.
func (r *Result) signs(w io.Writer, names []name, cells [][]mesh.Cell) error {
	left := leftWidth(names)
	var ruler strings.Builder
	for i := 0; i < len(names); i += 10 {
		fmt.Fprintf(&ruler, "%-10s", "|"+strconv.Itoa(i+1))
	}
	fmt.Fprintf(w, "%-*s  %s\n", left, "", strings.TrimRight(ruler.String(), " "))
	for i, row := range cells {
		var b strings.Builder
		for _, c := range row {
			if c.State == "" {
				b.WriteByte('-')
			} else {
				b.WriteString(signs[c.State])
			}
		}
		fmt.Fprintf(w, "%-*s  %s\n", left, names[i].row, b.String())
	}
	_, err := fmt.Fprintln(w)
	return err
}

// name is that of a row and of a column.
type name struct{ row, column string }

func leftWidth(names []name) (width int) {
	for _, n := range names {
		width = max(width, len(n.row))
	}
	return width
}

// cells are those of nodes; with --wide, those of NICs.
func (r *Result) cells() (names []name, cells [][]mesh.Cell) {
	if !r.wide {
		for i, n := range r.Nodes {
			number := strconv.Itoa(i + 1)
			names = append(names, name{fmt.Sprintf("%*s %s", len(strconv.Itoa(len(r.Nodes))), number, r.label(i, n)), number})
		}
		return names, r.Matrix
	}
	cells = make([][]mesh.Cell, len(r.NICs))
	for i, n := range r.NICs {
		number := strconv.Itoa(i + 1)
		names = append(names, name{fmt.Sprintf("%*s %s %s", len(strconv.Itoa(len(r.NICs))), number, r.label(n.Node, r.Nodes[n.Node]), n.Name), number})
		cells[i] = make([]mesh.Cell, len(r.NICs))
		for j := range cells[i] {
			if r.NICs[i].Node != r.NICs[j].Node && (!r.Plan.SameRail || r.NICs[i].Rail == r.NICs[j].Rail) {
				cells[i][j].State = mesh.Unknown
			}
		}
	}
	for i := range r.Links {
		l := &r.Links[i]
		cells[l.A][l.B] = mesh.Cell{State: l.State, Rate: l.AtoB}
		cells[l.B][l.A] = mesh.Cell{State: l.State, Rate: l.BtoA}
	}
	return names, cells
}

// label names a node in a row: by its own name, or by its address where two have that name.
func (r *Result) label(i int, n mesh.Node) string {
	if n.Host == "" {
		return n.Addr
	}
	for j := range r.Nodes {
		if j != i && r.Nodes[j].Host == n.Host {
			return n.Addr
		}
	}
	return n.Host
}
