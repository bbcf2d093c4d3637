// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// The parts of the page. uPlot draws the curves; page/README.md says where it is from.
var (
	//go:embed page/page.html
	pageTemplate string
	//go:embed page/page.css
	pageStyle string
	//go:embed page/page.js
	pageScript string
	//go:embed page/uPlot.iife.min.js
	plotScript string
	//go:embed page/uPlot.min.css
	plotStyle string
)

var pageForm = template.Must(template.New("page").Parse(pageTemplate))

// page is what the template shows.
type page struct {
	Policy                string // of content security
	Style                 template.CSS
	PlotScript, OwnScript template.JS
	Data                  template.JS // for OwnScript
	Title, Version, Begun string
	Facts                 [][2]string
	Warnings              []string
	Ops                   []pageOp
	Rows                  []pageRow
	First                 string // the kind that others are compared with
}

// pageOp is an operation, and what draws it.
type pageOp struct{ Name string }

// pageRow is a row of the table.
type pageRow struct {
	Op, Size, Kind                      string
	P25, P50, P75, P99, P999, Max       string
	Rate, Low, High, Ops, Ratio, Staged string
	Samples, Operations                 int
	Begins                              bool // the first of its operation and size
}

// pageData is what the script draws: for each operation and kind of memory the points in order of sizes.
type pageData struct {
	Curves []pageCurve `json:"curves"`
}

type pageCurve struct {
	Op     string      `json:"op"`
	Kind   string      `json:"kind"`
	Points []pagePoint `json:"points"`
}

// pagePoint has bandwidths in bytes per second and latencies in nanoseconds: first quartile, median, third
// quartile, and of latencies the 99th percentile.
type pagePoint struct {
	Size      int64      `json:"size"`
	Bandwidth [3]float64 `json:"bandwidth"`
	Latency   [4]float64 `json:"latency"`
}

// WritePage writes the page: one file, which asks for nothing else. Texts of the machines and of the server are only
// ever text in it.
func (r *Result) WritePage(w io.Writer, version string) error {
	p, err := r.page(version)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pageForm.Execute(&b, p); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

func (r *Result) page(version string) (*page, error) {
	var data pageData
	p := &page{
		Style:      template.CSS(plotStyle + pageStyle),
		PlotScript: template.JS(plotScript), OwnScript: template.JS(pageScript),
		Title: "dmabuf-reg bench: " + r.Local.NIC + " to " + r.Server, Version: version, Begun: r.Begun.UTC().Format("2006-01-02 15:04:05 UTC"),
		Facts: r.facts(), Warnings: r.warnings(),
	}
	p.Policy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s %s; base-uri 'none'; form-action 'none'", digest(string(p.Style)), digest(plotScript), digest(pageScript))
	for _, s := range r.series() {
		if len(p.Ops) == 0 || p.Ops[len(p.Ops)-1].Name != s.op {
			p.Ops = append(p.Ops, pageOp{s.op})
		}
		c := pageCurve{Op: s.op, Kind: s.kind}
		for _, x := range s.points {
			l, b := x.Latency, x.Bandwidth.Rate
			c.Points = append(c.Points, pagePoint{x.Size, [3]float64{b.Low, b.Median, b.High}, [4]float64{float64(l.P25), float64(l.P50), float64(l.P75), float64(l.P99)}})
		}
		data.Curves = append(data.Curves, c)
	}
	for i, x := range r.Points {
		l, b := x.Latency, x.Bandwidth
		p.Rows = append(p.Rows, pageRow{
			Op: x.Op, Size: bytesize.Format(x.Size), Kind: x.Kind, Samples: l.Samples, Operations: b.Operations,
			P25: human.Duration(l.P25), P50: human.Duration(l.P50), P75: human.Duration(l.P75), P99: human.Duration(l.P99), P999: human.Duration(l.P999), Max: human.Duration(l.Max),
			Rate: human.Rate(b.Rate.Median), Low: human.Rate(b.Rate.Low), High: human.Rate(b.Rate.High), Ops: fmt.Sprintf("%.0f", b.Rate.Median/float64(x.Size)),
			Ratio: fmt.Sprintf("%.2f", b.Ratio.Median), Staged: bytesize.Format(x.StagedBytes),
			Begins: i == 0 || r.Points[i-1].Op != x.Op || r.Points[i-1].Size != x.Size,
		})
		if i == 0 {
			p.First = x.Kind
		}
	}
	text, err := json.Marshal(data) // which writes <, > and & as escapes
	if err != nil {
		return nil, err
	}
	p.Data = template.JS(text)
	return p, nil
}

// digest is the source of a policy that lets one text run.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// facts are what was measured, and where, as rows of a name and a text.
func (r *Result) facts() (list [][2]string) {
	add := func(name, text string) {
		if text != "" {
			list = append(list, [2]string{name, text})
		}
	}
	add("Begun", r.Begun.UTC().Format(time.RFC3339))
	add("Kernel here", r.Kernel)
	m := r.Local.Memory
	what := m.Spec
	if m.Exporter != "" {
		what += ", exporter " + m.Exporter
	}
	add("Memory here", what+", "+m.Words()+", "+bytesize.Format(m.Size))
	add("NIC here", r.Local.NIC+": "+r.Local.NICReason)
	if len(r.Local.Registrations) < 2 {
		add("Path here", station.PathWords(r.Local.Path, r.Local.Why))
	} else {
		for _, x := range r.Local.Registrations {
			add("Path with "+x.NIC, station.PathWords(x.Path, x.Why))
		}
	}
	switch where := r.Local.Placement; {
	case where != nil:
		add("Placement here", where.String())
	case r.Local.Failure != nil:
		add("Placement here", "none: the kernel refused the registration: "+fmt.Sprint(*r.Local.Failure))
	default:
		add("Placement here", "not known: measured without --trace")
	}
	add("Server", fmt.Sprintf("%s: %s of %s with %s, %s", r.Server, bytesize.Format(r.Remote.Size), r.Remote.Spec, r.Remote.NIC, station.PathWords(r.Remote.Path, r.Remote.Why)))
	if len(r.Rails) < 2 {
		add("Over", fmt.Sprintf("port %d of %s, %s to %s: %s", r.Over.Port, r.Local.NIC, r.Over.GID, r.Over.Peer, r.Over.Why))
	}
	for i, x := range r.Rails {
		if len(r.Rails) > 1 {
			text := fmt.Sprintf("port %d of %s, %s to %s; %d links lost, %d operations failed", x.Port, x.NIC, x.GID, x.Peer, x.Lost, x.Failed)
			if !x.Up {
				text += "; down: " + x.Error
			}
			add(fmt.Sprint("Rail ", i+1), text)
		}
	}
	add("Measured", fmt.Sprintf("%d rounds in turn, slices of %v; bandwidth with %d operations under way, %d posted at a time; latency of one at a time, from posting to completion", r.Rounds, r.Slice, r.Depth, r.Batch))
	return list
}

// warnings are what a reader of the numbers should know.
func (r *Result) warnings() (list []string) {
	if l := r.Local; l.Path == station.PathDirect && l.Placement == nil && l.Memory.VRAM() {
		list = append(list, "Whether the bytes of direct memory are in the GPU was not looked at: the driver may have moved them. --trace looks, as root.")
	}
	if held := r.room(); held > 0 {
		list = append(list, fmt.Sprintf("Of write and send fewer than %d were under way beyond %s: the smaller buffer has room for no more at once; see --size.", r.Depth, bytesize.Format(held)))
	}
	if r.Rounds < fairRounds {
		list = append(list, fmt.Sprintf("Fewer than %d rounds: the ratios say little.", fairRounds))
	}
	for _, n := range r.NotTried {
		list = append(list, strings.TrimSpace(fmt.Sprintf("not measured: %s: %s", n.Spec, n.Why)))
	}
	return list
}
