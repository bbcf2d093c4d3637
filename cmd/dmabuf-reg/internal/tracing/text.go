// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/trace"
)

// jsonLines prints one object a line.
type jsonLines struct{ w io.Writer }

func (j jsonLines) event(e trace.Event) error { return writeLine(j.w, e) }

func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// lines prints a line for each event.
type lines struct{ w io.Writer }

func newLines(w io.Writer) printer { return lines{w} }

func (l lines) event(e trace.Event) error {
	r, pid := &e.Record, "-" // the process is not known
	if e.Record.PID != 0 {
		pid = fmt.Sprint(e.Record.PID)
	}
	_, err := fmt.Fprintf(l.w, "%s  %-11s  %7s %-15s  %s\n", e.Time.Format("15:04:05.000000"), e.Kind, pid, r.Comm, eventText(e))
	return err
}

// eventText is what an event says beside who and when.
func eventText(e trace.Event) string {
	r := &e.Record
	var parts []string
	if who := importerText(r); who != "" {
		parts = append(parts, who)
	}
	if r.Buffer != nil {
		parts = append(parts, bufferText(r.Buffer))
	}
	switch e.Kind {
	case trace.Refused, trace.MapRefused:
		parts = append(parts, r.Explain().String())
	case trace.Probed:
		parts = append(parts, probedText)
	case trace.GivenUp:
		parts = append(parts, "too many live; what becomes of it is not followed")
	case trace.Released:
		parts = append(parts, endText(r))
	default:
		parts = append(parts, placementText(r))
	}
	if e.Kind == trace.Existing && len(r.Incomplete) > 0 {
		parts[len(parts)-1] += "; not known: " + strings.Join(r.Incomplete, "; ")
	}
	if e.Kind == trace.Registered {
		parts[len(parts)-1] += fmt.Sprintf(", in %s", human.Duration(r.Duration))
	}
	return strings.Join(parts, ": ")
}

// endText says how a record ended, and when.
func endText(r *trace.Record) string {
	s := fmt.Sprintf("%s after %s", r.Ended, human.Duration(r.EndedAt.Sub(r.Start)))
	if r.Existed {
		s += " of tracing"
	}
	return s
}

// probedText is what a call without a descriptor was for.
const probedText = "asked, with descriptor -1, whether the driver registers dma-bufs, which it does"

func importerText(r *trace.Record) string {
	switch {
	case r.RDMADevice != "" && r.MR != nil:
		return fmt.Sprintf("%s MR %d", r.RDMADevice, r.MR.Number)
	case r.RDMADevice != "":
		return r.RDMADevice
	case r.Importer != nil:
		return r.Importer.Device
	}
	return ""
}

func bufferText(b *trace.Buffer) string {
	name := b.Exporter
	if b.Driver != "" && b.Driver != b.Exporter {
		name += " (" + b.Driver + ")"
	}
	return fmt.Sprintf("%s dma-buf %d of %s", name, b.Inode, bytesize.Format(int64(b.Size)))
}

func placementText(r *trace.Record) string {
	s := r.Placement.String()
	if r.DemotedBy != "" {
		s += "; demoted by " + r.DemotedBy + ", which may not use peer-to-peer"
	}
	if r.Unreachable != "" {
		s += "; " + r.Unreachable
	}
	return s
}

// shownUnreleased bounds the list; --json has more.
const shownUnreleased = 16

// Text implements app.Result.
func (r *Result) Text(to io.Writer) error {
	s, w := &r.Summary, bufio.NewWriter(to)
	fmt.Fprintf(w, "\nevents:   %s\n", countsText(s.Events, "none"))
	if r.Filtered > 0 {
		fmt.Fprintf(w, "          %d more left out: of other exporters, importers or processes than were asked for\n", r.Filtered)
	}
	if len(s.Memory) > 0 {
		fmt.Fprintf(w, "where:    %s\n", countsText(s.Memory, ""))
	}
	if len(s.Refusals) > 0 {
		fmt.Fprintf(w, "refused:  %s\n", countsText(s.Refusals, ""))
	}
	fmt.Fprintf(w, "loss:     %s\n", strings.TrimPrefix(s.Loss.String(), "lost: "))
	if len(s.Latency) > 0 {
		rows := [][]string{{"TIME UP TO", "COUNT", "P50", "P99", "MAX"}}
		for _, l := range s.Latency {
			name := l.Function
			if name == "" {
				name = "whole registrations"
			}
			rows = append(rows, []string{name, fmt.Sprint(l.Count), human.Duration(l.P50), human.Duration(l.P99), human.Duration(l.Max)})
		}
		fmt.Fprintln(w)
		if err := human.Table(w, rows); err != nil {
			return err
		}
	}
	if s.NUnreleased == 0 {
		return w.Flush()
	}
	fmt.Fprintf(w, "\nregistrations that were not deregistered: %d\n", s.NUnreleased)
	for _, u := range s.Unreleased[:min(len(s.Unreleased), shownUnreleased)] {
		how := "left to the end of its process"
		if u.Lives {
			how = "still registered"
		}
		buffer := ""
		if u.Record.Buffer != nil {
			buffer = ", " + bufferText(u.Record.Buffer)
		}
		fmt.Fprintf(w, "  %s of %s[%d]%s: %s\n", importerText(&u.Record), u.Record.Comm, u.Record.PID, buffer, how)
	}
	if n := s.NUnreleased - uint64(min(len(s.Unreleased), shownUnreleased)); n > 0 {
		fmt.Fprintf(w, "  ... and %d more\n", n)
	}
	return w.Flush()
}

// countsText lists counts by name.
func countsText[K ~string](m map[K]uint64, none string) string {
	if len(m) == 0 {
		return none
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}
