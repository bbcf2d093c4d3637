// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/peer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// output is a file made before the work, so that a path that cannot be written
// is told at once. nil is none.
type output struct {
	what, flag, path string
	file             *cli.OutFile
}

func newOutput(what, flag, path string) (*output, error) {
	if path == "" {
		return nil, nil
	}
	file, err := cli.Create(path)
	if err != nil {
		return nil, cli.Unwritten(what, flag, path, err)
	}
	return &output{what, flag, path, file}, nil
}

func (o *output) write(content func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	err := content(o.file)
	if err == nil {
		err = o.file.Keep(0o644)
	}
	if err = errors.Join(err, o.file.Drop()); err != nil {
		return cli.Unwritten(o.what, o.flag, o.path, err)
	}
	return nil
}

// drop removes what was not written.
func (o *output) drop() error {
	if o == nil {
		return nil
	}
	return o.file.Drop()
}

func (r *Result) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{
		"op", "size", "kind", "latency_samples", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns",
		"operations", "bytes_per_s_median", "bytes_per_s_low", "bytes_per_s_high", "bandwidth_ratio", "latency_ratio", "staged_bytes", "p25_ns", "p75_ns",
	})
	float := func(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
	for _, p := range r.Points {
		l, b := p.Latency, p.Bandwidth
		_ = c.Write([]string{
			p.Op, strconv.FormatInt(p.Size, 10), p.Kind, strconv.Itoa(l.Samples),
			strconv.FormatInt(int64(l.P50), 10), strconv.FormatInt(int64(l.P90), 10), strconv.FormatInt(int64(l.P99), 10),
			strconv.FormatInt(int64(l.P999), 10), strconv.FormatInt(int64(l.Max), 10),
			strconv.Itoa(b.Operations), float(b.Rate.Median), float(b.Rate.Low), float(b.Rate.High), float(b.Ratio.Median), float(l.Ratio.Median), strconv.FormatInt(p.StagedBytes, 10),
			strconv.FormatInt(int64(l.P25), 10), strconv.FormatInt(int64(l.P75), 10),
		})
	}
	c.Flush()
	return c.Error()
}

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	if err := peer.WriteSides(w, r.Local, r.Server, r.Remote, r.Rails, r.Over); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if r.Flap != nil {
		return r.Flap.Text(w)
	}
	rows := [][]string{{"OP", "SIZE", "MEMORY HERE", "P50", "P99", "P99.9", "BANDWIDTH", "HALF OF THE ROUNDS", "OPS/S", "RATIO"}}
	for _, p := range r.Points {
		b := p.Bandwidth.Rate
		rows = append(rows, []string{
			p.Op, bytesize.Format(p.Size), p.Kind, human.Duration(p.Latency.P50), human.Duration(p.Latency.P99), human.Duration(p.Latency.P999),
			human.Rate(b.Median), human.Rate(b.Low) + " to " + human.Rate(b.High), fmt.Sprintf("%.0f", b.Median/float64(p.Size)),
			fmt.Sprintf("%.2f", p.Bandwidth.Ratio.Median),
		})
	}
	if err := app.Table(w, rows, nil, "nothing was measured", "OPS/S", "P99.9"); err != nil {
		return err
	}
	if len(r.Points) > 0 {
		if r.plot != nil {
			r.plots(w)
		} else {
			r.sparklines(w)
		}
		text := fmt.Sprintf("Ratio of the bandwidth to that of %s memory here, median of %d rounds in turn; slices of %v, depth %d, batch %d.",
			r.Points[0].Kind, r.Rounds, r.Slice, r.Depth, r.Batch)
		if err := human.Line(w, text, "\n", ""); err != nil {
			return err
		}
	}
	for _, text := range r.warnings() {
		if err := human.Line(w, text, "", ""); err != nil {
			return err
		}
	}
	return nil
}

// room is the largest size of which the smaller buffer has room for Depth at once, where
// a larger one was measured of an operation that does not use a place twice at a time; 0
// otherwise.
func (r *Result) room() int64 {
	held := min(r.Local.Memory.Size, r.Remote.Size) / int64(max(r.Depth, 1))
	for _, p := range r.Points {
		if p.Op != talk.Read.String() && p.Size > held {
			return held
		}
	}
	return 0
}

// series are the points of one operation with one kind of memory, by size.
type series struct {
	op, kind string
	points   []benchPoint
}

func (r *Result) series() (list []series) {
next:
	for _, p := range r.Points {
		for i := range list {
			if list[i].op == p.Op && list[i].kind == p.Kind {
				list[i].points = append(list[i].points, p)
				continue next
			}
		}
		list = append(list, series{p.Op, p.Kind, []benchPoint{p}})
	}
	return list
}

// sparklines draw the bandwidth by size, all on one scale.
func (r *Result) sparklines(w io.Writer) {
	const levels = "▁▂▃▄▅▆▇█"
	most := 0.0
	for _, p := range r.Points {
		most = max(most, p.Bandwidth.Rate.Median)
	}
	if most == 0 {
		return
	}
	fmt.Fprintln(w)
	for _, s := range r.series() {
		var line strings.Builder
		for _, p := range s.points {
			i := min(int(p.Bandwidth.Rate.Median/most*8), 7)
			line.WriteRune([]rune(levels)[i])
		}
		first, last := s.points[0], s.points[len(s.points)-1]
		fmt.Fprintf(w, "%-5s %-6s  %s  %s at %s, %s at %s\n", s.op, s.kind, line.String(),
			human.Rate(first.Bandwidth.Rate.Median), bytesize.Format(first.Size), human.Rate(last.Bandwidth.Rate.Median), bytesize.Format(last.Size))
	}
}
