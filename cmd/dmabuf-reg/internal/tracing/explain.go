// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// Explain is the command `explain`.
func Explain(a *app.App) *cobra.Command {
	f := params{}
	cmd := &cobra.Command{
		Use:   "explain [flags] -- COMMAND ARG...",
		Short: "Run any program and explain its dma-buf registrations",
		Long: `Run COMMAND, which need not know of this, and say in words of each dma-buf
registration that it and the programs it starts make: whose memory it is, where
the bytes are and how that is known, what happened to it; and of each that
failed the chain of kernel functions, and the one that refused.

explain prints to stderr, or to --output, so that COMMAND has stdout for
itself. The exit status is COMMAND's (126 if it cannot be run, 127 if it cannot be
found, 128 and the signal's number if one killed it).

A library that lacks an operation for dma-bufs refuses without asking the kernel:
then there is nothing to explain, and "events: none" at the end.`,
		Example: `  dmabuf-reg explain -- ib_write_bw --use_cuda=0 node2
  dmabuf-reg explain -o why.txt -- mpirun -n 2 ./job`,
	}
	f.common(cmd)
	watching(a, cmd, &f, newWords)
	some := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("no COMMAND to run, as in: %s explain -- COMMAND ARG", app.Program)
		}
		return some(cmd, args)
	}
	return cmd
}

// words prints a paragraph for each registration, and a line for what happens
// to it later.
type words struct {
	w       io.Writer
	numbers map[uint64]int // of living records
	last    int
}

func newWords(w io.Writer) printer { return &words{w: w, numbers: map[uint64]int{}} }

func (x *words) event(e trace.Event) error {
	r := &e.Record
	if e.Kind == trace.Probed {
		_, err := fmt.Fprintf(x.w, "%s (process %d) %s: %s\n\n", r.Comm, r.PID, probedText, r.RDMADevice)
		return err
	}
	n, known := x.numbers[r.ID]
	if !known {
		x.last++
		n = x.last
		if e.Kind != trace.Refused {
			x.numbers[r.ID] = n
		}
		_, err := fmt.Fprintf(x.w, "%s %d: %s\n\n", subjectText(r), n, strings.Join(paragraph(r), "\n"))
		return err
	}
	text := placementText(r)
	switch e.Kind {
	case trace.MapRefused:
		text = r.Explain().String()
	case trace.GivenUp:
		delete(x.numbers, r.ID)
		text = "too many live; what becomes of it is not followed"
	case trace.Released:
		delete(x.numbers, r.ID)
		text = endText(r)
		if last := r.Placement.String(); r.Moves > 0 {
			text += ", at last " + last
		}
	}
	_, err := fmt.Fprintf(x.w, "%s %d %s: %s\n", subjectText(r), n, e.Kind, text)
	return err
}

func subjectText(r *trace.Record) string {
	if r.Registration() {
		return "registration"
	}
	return "attachment"
}

// paragraph says everything that is known of a record, a fact a line.
func paragraph(r *trace.Record) []string {
	where := ""
	if r.RDMADevice != "" {
		where = " on " + r.RDMADevice
	}
	if u := r.Use.Words(); u != "" && !r.Registration() {
		where = " for " + u + where
	}
	head := fmt.Sprintf("%s%s by %s (process %d)", r.Call, where, r.Comm, r.PID)
	if r.Failed() {
		head += fmt.Sprintf(" was refused after %s: %s", human.Duration(r.Duration), errno.Text(r.Errno))
	} else {
		head += fmt.Sprintf(" took %s", human.Duration(r.Duration))
	}
	list := []string{head}
	say := func(name, format string, args ...any) {
		list = append(list, fmt.Sprintf("  %-9s %s", name, fmt.Sprintf(format, args...)))
	}
	if r.Failed() {
		f := r.Explain()
		say("because", "%s", f.Detail)
		if f.Remedy != "" {
			say("remedy", "%s", f.Remedy)
		}
		say("refused", "%s, stage %s", f.Function, f.Stage)
	}
	if b := r.Buffer; b != nil {
		moves := "; its exporter does not move it"
		if b.Movable {
			moves = "; its exporter may move what is not pinned"
		}
		say("buffer", "%s%s", bufferText(b), moves)
	}
	if r.ArgsKnown || r.MR != nil {
		say("range", "offset %#x, %s at IOVA %#x", r.Offset, bytesize.Format(int64(r.Length)), r.IOVA)
	}
	if i := r.Importer; i != nil {
		say("importer", "%s", importerWords(i))
	}
	if r.MR != nil {
		say("keys", "MR %d, lkey %#x, rkey %#x", r.MR.Number, r.MR.LKey, r.MR.RKey)
	}
	if !r.Failed() {
		say("bytes", "%s", placementText(r))
		say("direct", "%s", directWords(r))
	}
	for _, why := range r.Incomplete {
		say("unknown", "%s", why)
	}
	say("chain", "%s", chainText(r))
	return list
}

func importerWords(i *trace.Importer) string {
	s := i.Device
	if i.Bus != "" {
		s += " (" + i.Bus + ")"
	}
	if i.PCI != "" && !i.IsPCI {
		s += " below " + i.PCI
	}
	switch i.Mode {
	case trace.ModeStatic, trace.ModePinned:
		s += ", keeps the buffer in place"
	case trace.ModeRevocable:
		s += ", keeps the buffer in place until it is revoked"
	case trace.ModeDynamic:
		s += ", lets the buffer move and maps it again"
	}
	switch i.PeerAllowed {
	case placement.Yes:
		s += ", may be given another device's memory"
	case placement.No:
		s += ", may not be given another device's memory"
	}
	return s + ", addresses translated by: " + i.IOMMU
}

func directWords(r *trace.Record) string {
	switch r.Placement.Direct() {
	case placement.Yes:
		return fmt.Sprintf("yes: %v: %s", r.Placement.Route, r.Placement.RouteReason)
	case placement.No:
		if r.Placement.Memory == placement.NotMapped {
			return "no: nothing is mapped"
		}
		return "no: DMA goes to the host's memory"
	}
	if r.Placement.RouteReason != "" {
		return "not known: " + r.Placement.RouteReason
	}
	return "not known"
}

// chainText lists the functions of a call in the order of their return, with
// what each answered and when.
func chainText(r *trace.Record) string {
	if len(r.Steps) == 0 {
		return "nothing was seen"
	}
	refusing := ""
	if r.Failed() {
		refusing = r.Explain().Function
	}
	const indent = "\n            "
	var b strings.Builder
	for i, s := range r.Steps {
		if i > 0 {
			b.WriteString(indent)
		}
		fmt.Fprintf(&b, "%8s  %s", human.Duration(s.At), s.Function)
		if s.Err != 0 {
			b.WriteString(" " + errno.Name(s.Err))
		}
		if s.Note != "" {
			b.WriteString(": " + s.Note)
		}
		if s.Function == refusing && s.Err != 0 {
			b.WriteString("  <- refused")
			refusing = ""
		}
	}
	return b.String()
}
