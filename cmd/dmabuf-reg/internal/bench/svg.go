// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// The drawing: two panels over the same sizes, both axes logarithmic. Colours
// are kinds of memory, dashes operations.
const (
	panelWidth, panelHeight = 420.0, 300.0
	marginLeft, marginTop   = 90.0, 50.0
	gap                     = 110.0
	legendHeight            = 90.0
)

var (
	colours = map[string]string{station.PathDirect: "#1b7837", station.PathMoved: "#d95f02", station.PathStaged: "#b2182b", station.Host: "#2166ac"}
	dashes  = map[string]string{"write": "", "read": "7 4", "send": "2 3"}
)

// axis maps values to places by their logarithm.
type axis struct{ low, high, from, to float64 }

func newAxis(values []float64, from, to float64) axis {
	a := axis{math.Inf(1), math.Inf(-1), from, to}
	for _, v := range values {
		if v > 0 {
			a.low, a.high = min(a.low, v), max(a.high, v)
		}
	}
	if a.low >= a.high { // one value, or none
		a.low, a.high = max(a.high, 1)/2, max(a.high, 1)*2
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*(math.Log(v)-math.Log(a.low))/(math.Log(a.high)-math.Log(a.low))
}

// ticks are powers of ten, or the ends if there are too few.
func (a axis) ticks() (list []float64) {
	for v := math.Pow(10, math.Ceil(math.Log10(a.low))); v <= a.high; v *= 10 {
		list = append(list, v)
	}
	if len(list) < 2 {
		list = []float64{a.low, a.high}
	}
	return list
}

// svg draws the results.
func (r *Result) svg(w io.Writer) error {
	var b bytes.Buffer
	width, height := marginLeft+2*panelWidth+gap+20, marginTop+panelHeight+legendHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	r.panel(&b, marginLeft, "bandwidth, median", func(p benchPoint) float64 { return p.Bandwidth.Rate.Median }, func(v float64) string { return human.Rate(v) })
	r.panel(&b, marginLeft+panelWidth+gap, "latency of one operation, median", func(p benchPoint) float64 { return float64(p.Latency.P50) },
		func(v float64) string { return human.Duration(time.Duration(v)) })
	x, y := marginLeft, marginTop+panelHeight+45
	for _, s := range r.series() {
		if x+150 > width {
			x, y = marginLeft, y+16
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x, y, x+30, y, s.stroke())
		label(&b, x+36, y+4, "start", s.op+", "+s.kind)
		x += 130
	}
	label(&b, marginLeft, height-8, "start", fmt.Sprintf("here %s, server %s; %d rounds, depth %d, batch %d", r.Local.Why, station.PathWords(r.Remote.Path, r.Remote.Why), r.Rounds, r.Depth, r.Batch))
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (s series) stroke() string {
	return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="1.8" stroke-dasharray="%s"`, colours[s.kind], dashes[s.op])
}

func label(b *bytes.Buffer, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(text)) // a Buffer takes everything
	b.WriteString("</text>\n")
}

func (r *Result) panel(b *bytes.Buffer, left float64, title string, value func(benchPoint) float64, name func(float64) string) {
	bottom := marginTop + panelHeight
	var sizes, values []float64
	for _, p := range r.Points {
		sizes, values = append(sizes, float64(p.Size)), append(values, value(p))
	}
	x, y := newAxis(sizes, left, left+panelWidth), newAxis(values, bottom, marginTop)
	label(b, left, marginTop-16, "start", title)
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="#888"/>`+"\n", left, marginTop, panelWidth, panelHeight)
	for _, v := range y.ticks() {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`, left, y.at(v), left+panelWidth, y.at(v))
		label(b, left-6, y.at(v)+4, "end", name(v))
	}
	for i, s := range r.series() {
		fmt.Fprintf(b, `<polyline %s points="`, s.stroke())
		for _, p := range s.points {
			if v := value(p); v > 0 {
				fmt.Fprintf(b, "%.1f,%.1f ", x.at(float64(p.Size)), y.at(v))
			}
		}
		b.WriteString(`"/>` + "\n")
		for _, p := range s.points {
			if i == 0 {
				label(b, x.at(float64(p.Size)), bottom+16, "middle", bytesize.Format(p.Size))
			}
			if v := value(p); v > 0 {
				fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.2" fill="%s"/>`, x.at(float64(p.Size)), y.at(v), colours[s.kind])
			}
		}
		b.WriteString("\n")
	}
}
