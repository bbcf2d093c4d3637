// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Measures of the drawing, in pixels.
const (
	svgRow    = 22
	svgIndent = 26
	svgChar   = 7.3 // of the widest letters that lines have
	svgCell   = 92
	svgLabel  = 220
	svgMargin = 16
)

// fills are the colours of the kinds of functions in the drawing.
var fills = map[string]string{
	"GPU": "#d7f0d0", "NIC": "#d0e4f7", "NVMe": "#e8dcf5", mover: "#d0e4f7", guestNIC: "#d0e4f7", "bridge": "#eeeeee", "other": "#ffffff",
	"direct": "#9fd98a", "staged": "#f2a48f", "refused": "#f2a48f", "lost": "#f2a48f", "broken": "#f2a48f", "unknown": "#f5dd8a",
}

// SVG writes a drawing of the tree, with the pairs below it. With all it also has
// the facts that have their usual values. Its errors are those of w.
func (r Topology) SVG(w io.Writer, all bool) error {
	var b strings.Builder
	y, widest := svgMargin, 0.0
	bus := ""
	at := map[string][2]int{} // where a function is drawn
	slow := r.slow()
	red := false
	for _, f := range r.Functions {
		if f.Bus != bus {
			bus = f.Bus
			y += svgRow / 2
			svgText(&b, svgMargin, y+15, bus)
			at[bus] = [2]int{svgMargin, y}
			y += svgRow
		}
		path := append([]string{f.Bus}, f.path()...)
		x := svgMargin + svgIndent*(len(path)-1)
		above := path[len(path)-2]
		at[f.PCI.String()] = [2]int{x, y}
		line := f.line(all)
		width := float64(len(line))*svgChar + 12
		widest = max(widest, float64(x)+width)
		less, redirects := f.Link.Less() || slow[f.PCI], f.ACS.Redirecting()
		red = red || less || redirects
		// Down from the function above, then to the right.
		p := at[above]
		fmt.Fprintf(&b, "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"%s\"/>\n", p[0]+8, p[1]+svgRow-3, y+svgRow/2, x, stroke(less))
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"3\" fill=\"%s\" stroke=\"%s\"/>\n", x, y+1, width, svgRow-4, fills[f.Role], stroke(redirects))
		svgText(&b, x+6, y+14, line)
		y += svgRow
	}
	y += svgRow
	if red {
		svgText(&b, svgMargin, y+14, "red: a port that redirects; a link that could carry more, or carries less than the links of a GPU and a NIC")
		widest = max(widest, svgMargin+105*svgChar)
		y += 2 * svgRow
	}
	gpus, nics := r.ends()
	for i, n := range nics {
		svgText(&b, svgMargin+svgLabel+i*svgCell, y+14, n)
	}
	if len(gpus) > 0 {
		y += svgRow
	}
	next := 0
	for _, g := range gpus {
		svgText(&b, svgMargin, y+14, g)
		for i := range nics {
			p := r.Pairs[next]
			next++
			x := svgMargin + svgLabel + i*svgCell
			text, fill := render.Predicted(p.Pair), fills["other"]
			if p.Counts {
				fill = fills[p.Outcome]
			}
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", x, y+1, svgCell-4, svgRow-4, fill)
			svgText(&b, x+6, y+14, text)
		}
		y += svgRow
	}
	if slices.ContainsFunc(r.Pairs, func(p PairWay) bool { return p.Slow() }) {
		y += svgRow
		svgText(&b, svgMargin, y+14, render.SlowMark+" "+render.SlowLegend)
		widest = max(widest, svgMargin+float64(len(render.SlowLegend)+2)*svgChar)
		y += svgRow
	}
	widest = max(widest, float64(svgMargin+svgLabel+len(nics)*svgCell))
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" font-family=\"monospace\" font-size=\"12\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n%s</svg>\n", widest+svgMargin, y+svgMargin, &b)
	return err
}

// slow are the functions whose links make a pair slower than the links of its ends
// could be.
func (r Topology) slow() map[pciaddr.Addr]bool {
	out := map[pciaddr.Addr]bool{}
	for _, p := range r.Pairs {
		if p.Counts && p.Way != nil && p.Way.BytesPerS < p.Way.EndsBytesPerS {
			out[p.Way.Slowest] = true
		}
	}
	return out
}

// stroke is the colour of a line.
func stroke(odd bool) string {
	if odd {
		return "#c0392b"
	}
	return "#888"
}

// ends are the names of rows and columns of the pairs.
func (r Topology) ends() (gpus, nics []string) {
	for _, p := range r.Pairs {
		if len(gpus) == 0 || gpus[len(gpus)-1] != p.GPU {
			gpus = append(gpus, p.GPU)
		}
		if len(gpus) == 1 {
			nics = append(nics, p.NIC)
		}
	}
	return gpus, nics
}

func svgText(b *strings.Builder, x, y int, text string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">", x, y)
	_ = xml.EscapeText(b, []byte(text)) // a Builder takes everything
	b.WriteString("</text>\n")
}
