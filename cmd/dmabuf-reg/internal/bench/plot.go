// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// Sizes of a plot in characters.
const (
	plainWidth = 80 // where there is no terminal
	leastWidth = 40
	mostWidth  = 132
	plotHeight = 14
	tickWidth  = 11 // of the names of the vertical axis
)

// canvas says how curves are drawn into text.
type canvas struct {
	width int
	ascii bool // the locale has no other characters
}

// newCanvas is a canvas as wide as the terminal that w is.
func newCanvas(w io.Writer) *canvas {
	c := &canvas{width: plainWidth, ascii: !utf8Locale(os.Getenv)}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		c.width = n
	}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			c.width = n
		}
	}
	c.width = min(max(c.width, leastWidth), mostWidth)
	return c
}

// utf8Locale reports whether the locale of the environment has the characters of UTF-8, by the first variable that
// is set, as setlocale(3) reads them.
func utf8Locale(env func(string) string) bool {
	name := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	return strings.Contains(name, "utf-8") || strings.Contains(name, "utf8")
}

// grid are the characters of a plot, by rows from above.
type grid [][]rune

// set puts a character, if it is on the grid and weaker ones are there.
func (g grid) set(x, y int, r rune, over string) {
	if y >= 0 && y < len(g) && x >= 0 && x < len(g[y]) && strings.ContainsRune(" "+over, g[y][x]) {
		g[y][x] = r
	}
}

// marks are the characters of a drawing.
type marks struct{ line, spread, vertical, horizontal, corner, several rune }

func (c *canvas) marks() marks {
	if c.ascii {
		return marks{'.', ':', '|', '-', '+', '*'}
	}
	return marks{'·', '│', '┃', '━', '┗', '◆'}
}

// plots draw bandwidth and latency of each operation, a plot each.
func (r *Result) plots(w io.Writer) {
	var ops []string
	for _, s := range r.series() {
		if !slices.Contains(ops, s.op) {
			ops = append(ops, s.op)
		}
	}
	for _, op := range ops {
		r.plotOf(w, op, "bandwidth", func(p benchPoint) spread { return p.Bandwidth.Rate }, rateName)
		r.plotOf(w, op, "latency", func(p benchPoint) spread {
			return spread{Median: float64(p.Latency.P50), Low: float64(p.Latency.P25), High: float64(p.Latency.P75)}
		}, func(v float64) string { return human.Duration(time.Duration(v)) })
	}
}

// plotOf draws one value of an operation by size, both axes logarithmic: the median of each kind of memory as the first
// letter of its name, and its quartiles.
func (r *Result) plotOf(w io.Writer, op, what string, value func(benchPoint) spread, name func(float64) string) {
	m := r.plot.marks()
	var curves []series
	var sizes, values []float64
	for _, s := range r.series() {
		if s.op != op {
			continue
		}
		curves = append(curves, s)
		for _, p := range s.points {
			v := value(p)
			sizes, values = append(sizes, float64(p.Size)), append(values, v.Low, v.Median, v.High)
		}
	}
	columns := r.plot.width - tickWidth - 2
	x, y := newAxis(sizes, 2, float64(columns-3)), newAxis(values, plotHeight-1, 0)
	g := make(grid, plotHeight)
	for i := range g {
		g[i] = []rune(strings.Repeat(" ", columns))
	}
	at := func(p benchPoint, v float64) (column, row int) {
		return int(math.Round(x.at(float64(p.Size)))), int(math.Round(y.at(v)))
	}
	var key []string
	for _, s := range curves {
		points := slices.Clone(s.points)
		points = slices.DeleteFunc(points, func(p benchPoint) bool { return value(p).Median <= 0 })
		slices.SortFunc(points, func(a, b benchPoint) int { return cmp.Compare(a.Size, b.Size) })
		for i, p := range points {
			if i > 0 {
				x0, y0 := at(points[i-1], value(points[i-1]).Median)
				x1, y1 := at(p, value(p).Median)
				for column := x0 + 2; column < x1-1; column += 3 { // as dots, which leave room for the other curves
					g.set(column, y0+int(math.Round(float64((y1-y0)*(column-x0))/float64(x1-x0))), m.line, "")
				}
			}
			if v := value(p); v.Low > 0 && v.High > 0 {
				column, top := at(p, v.High)
				_, bottom := at(p, v.Low)
				for row := top; row <= bottom; row++ {
					g.set(column, row, m.spread, string(m.line))
				}
			}
		}
		key = append(key, fmt.Sprintf("%c %s", s.kind[0], s.kind))
	}
	for _, s := range curves {
		for _, p := range s.points {
			if v := value(p).Median; v > 0 {
				column, row := at(p, v)
				letter := rune(s.kind[0])
				if old := g[row][column]; old >= 'a' && old <= 'z' || old == m.several {
					letter = m.several
				}
				g.set(column, row, letter, string([]rune{m.line, m.spread, g[row][column]}))
			}
		}
	}
	fmt.Fprintf(w, "\n%s, %s: %s; %c several, %c half of them\n", op, what, strings.Join(key, ", "), m.several, m.spread)
	named := map[int]string{}
	for _, v := range y.ticks() {
		text := name(v)
		if r.plot.ascii {
			text = strings.ReplaceAll(text, "µ", "u")
		}
		named[int(math.Round(y.at(v)))] = text
	}
	for i, row := range g {
		fmt.Fprintf(w, "%s %c%s\n", padded(named[i], tickWidth), m.vertical, strings.TrimRight(string(row), " "))
	}
	fmt.Fprintf(w, "%s %c%s\n", strings.Repeat(" ", tickWidth), m.corner, strings.Repeat(string(m.horizontal), columns))
	fmt.Fprintf(w, "%s  %s\n", strings.Repeat(" ", tickWidth), r.sizesBelow(curves, x, columns))
}

// rateName is a rate at the axis: below 1 MB/s human.Rate has one digit at most.
func rateName(v float64) string {
	if v < 1e6 {
		return fmt.Sprintf("%.3g kB/s", v/1e3)
	}
	return human.Rate(v)
}

// padded is a text at the right end of a column; a name that is too long keeps its beginning.
func padded(text string, width int) string {
	if n := utf8.RuneCountInString(text); n < width {
		return strings.Repeat(" ", width-n) + text
	}
	return string([]rune(text)[:width])
}

// sizesBelow is the line of sizes below a plot: those that have room.
func (r *Result) sizesBelow(curves []series, x axis, columns int) string {
	line := []rune(strings.Repeat(" ", columns))
	free := 0
	for _, p := range curves[0].points {
		text := bytesize.Format(p.Size)
		from := int(math.Round(x.at(float64(p.Size)))) - len(text)/2
		from = min(max(from, 0), columns-len(text))
		if from < free {
			continue
		}
		copy(line[from:], []rune(text))
		free = from + len(text) + 2
	}
	return strings.TrimRight(string(line), " ")
}
