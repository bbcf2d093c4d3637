// SPDX-License-Identifier: Apache-2.0

package human

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Wide is a writer without a limit of columns: [Table] shows every column of a row in one line,
// and [Line] breaks no line. A command makes one of its output for --wide.
type Wide struct{ io.Writer }

// Limits of a table that is folded.
const (
	gap       = 2  // spaces between two columns
	narrowest = 18 // a column of text is not made narrower than this
)

// Table writes rows in aligned columns. The first row is the header. An empty cell becomes a dash,
// so that a row can be read from any column.
//
// A table that is wider than [Columns] leaves out the columns that spare names, one after another,
// until it fits, and a line below it names them. Columns whose names are joined by commas go together. If it is still too wide, the cells of its widest columns
// continue on the lines below. No text is cut off: a word that is too long stays whole.
func Table(w io.Writer, rows [][]string, spare ...string) error {
	if len(rows) == 0 {
		return nil
	}
	grid := make([][]string, len(rows))
	for i, row := range rows {
		grid[i] = make([]string, len(row))
		for j, cell := range row {
			if cell == "" {
				cell = "-"
			}
			grid[i][j] = strings.NewReplacer("\t", " ", "\n", " ").Replace(cell)
		}
	}
	widths := natural(grid)
	var out []string
	if _, wide := w.(Wide); !wide {
		for _, group := range spare {
			if sum(widths) <= Columns {
				break
			}
			for name := range strings.SplitSeq(group, ",") {
				if i := slices.Index(grid[0], name); i >= 0 {
					for r := range grid {
						grid[r] = slices.Delete(grid[r], i, i+1)
					}
					out, widths = append(out, name), slices.Delete(widths, i, i+1)
				}
			}
		}
		widths = fit(grid, widths)
	}
	var b strings.Builder
	for _, row := range grid {
		writeRow(&b, row, widths)
	}
	if len(out) > 0 {
		b.WriteString(Fold(fmt.Sprintf("not shown: %s (--wide shows all columns)", strings.Join(out, ", ")), "", "  ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// natural returns the widths of columns whose cells are not broken.
func natural(grid [][]string) []int {
	widths := make([]int, len(grid[0]))
	for _, row := range grid {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// sum returns how wide a table of such columns is.
func sum(widths []int) int {
	n := gap * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// fit returns widths with which the table fits, as far as words allow. The room that the narrow
// columns leave is shared among the others, in proportion to their widths.
func fit(grid [][]string, widths []int) []int {
	if sum(widths) <= Columns {
		return widths
	}
	least := make([]int, len(widths))
	for i := range widths {
		least[i] = min(narrowest, widths[i])
		for r, row := range grid {
			if r == 0 { // the header stays in one line
				least[i] = max(least[i], utf8.RuneCountInString(row[i]))
				continue
			}
			for word := range strings.FieldsSeq(row[i]) {
				least[i] = max(least[i], utf8.RuneCountInString(word))
			}
		}
	}
	out := slices.Clone(widths)
	for fixed := make([]bool, len(widths)); ; {
		room, share := Columns-gap*(len(widths)-1), 0
		for i, w := range out {
			if fixed[i] = fixed[i] || least[i] == widths[i]; fixed[i] {
				room -= w
			} else {
				share += widths[i]
			}
		}
		again := false
		for i := range out {
			if fixed[i] {
				continue
			}
			if out[i] = max(room, 0) * widths[i] / share; out[i] < least[i] {
				out[i], fixed[i], again = least[i], true, true
			}
		}
		if !again {
			if i := slices.Index(fixed, false); i >= 0 {
				out[i] += max(0, Columns-sum(out)) // the remainder of the divisions
			}
			return better(grid, out, least)
		}
	}
}

// better moves a few columns of width between two columns, where fewer cells are broken then: the first column
// that gains is the left one. A large table is left as it is.
func better(grid [][]string, widths, least []int) []int {
	const most, rows = 8, 200
	if len(grid) > rows {
		return widths
	}
	out := slices.Clone(widths)
	for range most {
		gain, from, to, by := 0, 0, 0, 0
		for i := len(out) - 1; i >= 0; i-- {
			for j := range out {
				for n := 1; i != j && n <= most && out[i]-n >= least[i]; n++ {
					before := lines(grid, i, out[i]) + lines(grid, j, out[j])
					if g := before - lines(grid, i, out[i]-n) - lines(grid, j, out[j]+n); g > gain {
						gain, from, to, by = g, i, j, n
					}
				}
			}
		}
		if gain == 0 {
			break
		}
		out[from], out[to] = out[from]-by, out[to]+by
	}
	return out
}

// lines returns how many lines the cells of a column have together.
func lines(grid [][]string, column, width int) (n int) {
	for _, row := range grid[1:] {
		n += strings.Count(foldTo(width, row[column], "", ""), "\n") + 1
	}
	return n
}

// writeRow writes a row, on as many lines as its longest cell needs.
func writeRow(b *strings.Builder, row []string, widths []int) {
	lines, most := make([][]string, len(row)), 0
	for i, cell := range row {
		if lines[i] = []string{cell}; utf8.RuneCountInString(cell) > widths[i] {
			lines[i] = strings.Split(foldTo(widths[i], cell, "", ""), "\n")
		}
		most = max(most, len(lines[i]))
	}
	for n := range most {
		var line strings.Builder
		for i, cell := range lines {
			text := ""
			if n < len(cell) {
				text = cell[n]
			}
			line.WriteString(text)
			line.WriteString(strings.Repeat(" ", gap+max(0, widths[i]-utf8.RuneCountInString(text))))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
