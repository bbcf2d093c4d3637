// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/placement"
)

// The columns that a narrow table does without: of a plain verification, and of one that says where the bytes
// are. They go together, so that the shape of a table does not depend on how many digits a rate has.
const (
	spare   = "INODE,LKEY,RKEY,REG TIME,ROUTE"
	spareOf = spare + ",READ,WRITE,DRIVER"
)

// Text implements app.Result.
func (r *Result) Text(w io.Writer) error {
	if len(r.Rows) == 1 && r.Rows[0].NIC == "" {
		return nil // the memory of --gpu is not to be had: the error says all that there is
	}
	rows := [][]string{{"MEMORY", "DRIVER", "NIC", "INODE", "ROUTE", "LKEY", "RKEY", "REG TIME", "WRITE", "READ", "VERIFIED", "RESULT"}}
	passed := 0
	for _, row := range r.Rows {
		cells := []string{row.Spec, "", row.NIC, "", "", "", "", "", "", "", "", "FAIL"}
		if p := row.Report; p != nil {
			cells[1] = p.Driver
			if p.MRs > 0 {
				cells[3], cells[4] = strconv.FormatUint(p.Inode, 10), string(p.Route)
				cells[5], cells[6] = fmt.Sprintf("%#x", p.LKey), fmt.Sprintf("%#x", p.RKey)
				cells[7] = human.Duration(p.RegTime)
			}
			cells[8], cells[9] = human.Rate(p.WriteRate), human.Rate(p.ReadRate)
			cells[10] = fmt.Sprintf("%.1f MiB", float64(p.VerifiedBytes)/(1<<20))
		}
		if row.OK {
			cells[11] = "ok"
			passed++
		}
		if r.traced() {
			cells = append(cells, row.where())
		}
		if r.located() {
			says := ""
			if row.Located != nil {
				says = row.Located.words()
			}
			cells = append(cells, says)
		}
		rows = append(rows, cells)
	}
	if r.traced() {
		rows[0] = append(rows[0], "BYTES")
	}
	if r.located() {
		rows[0] = append(rows[0], "LOOKED FOR AND")
	}
	narrow := spare
	if r.traced() || r.located() {
		narrow = spareOf
	}
	if err := app.Table(w, rows, nil, "nothing was verified", narrow); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if err := row.details(w); err != nil {
			return err
		}
	}
	for _, row := range r.Rows {
		if (row.OK || r.RequireDirect && row.Report != nil && row.Report.OK) && row.Staged != "" {
			text := fmt.Sprintf("NOT IN THE GPU'S MEMORY: %s with %s was allocated in VRAM, registered, written, read and verified, and its bytes are not there: %s", row.Spec, row.NIC, row.Staged)
			if err := human.Line(w, text, "", "    "); err != nil {
				return err
			}
		}
	}
	if len(r.NotTried) > 0 {
		var specs []string
		for _, n := range r.NotTried {
			specs = append(specs, n.Spec)
		}
		if err := human.Line(w, fmt.Sprintf("not available here, so not tried: %s (`dmabuf-reg devices` says why)", strings.Join(specs, ", ")), "", "    "); err != nil {
			return err
		}
	}
	if r.Untraced != "" {
		if err := human.Line(w, "not traced, so nothing says where the bytes were: "+r.Untraced, "", "    "); err != nil {
			return err
		}
	}
	if r.Unlocated != "" {
		if err := human.Line(w, "not looked for with --locate: "+r.Unlocated, "", "    "); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nseed %d, buffers of %s, %s\n", r.Seed, r.sizes(), human.Duration(r.Elapsed))
	verdict := fmt.Sprintf("PASS: %d of %d: every byte that the NIC wrote and read was the right one, at the right offset\nof the buffer, and nothing else changed.", passed, len(r.Rows))
	switch {
	case passed < len(r.Rows):
		verdict = fmt.Sprintf("FAIL: %d of %d passed.", passed, len(r.Rows))
	case r.interrupted && passed == 0:
		verdict = "NO VERDICT: it was interrupted before the first was done."
	case r.interrupted:
		verdict = fmt.Sprintf("NO VERDICT: it was interrupted after %d, which were right.", passed)
	case len(r.Rows) == 0:
		verdict = "FAIL: there was nothing to verify."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

// sizes says how large the buffers were, which may be more than was asked for.
func (r *Result) sizes() string {
	asked := bytesize.Format(r.Size)
	var sizes []int64
	for _, row := range r.Rows {
		if row.Report != nil && row.Report.Size > 0 {
			sizes = append(sizes, row.Report.Size)
		}
	}
	if len(sizes) == 0 {
		return asked
	}
	least, most := slices.Min(sizes), slices.Max(sizes)
	if least == r.Size && most == r.Size {
		return asked
	}
	text := bytesize.Format(least)
	if most != least {
		text += " to " + bytesize.Format(most)
	}
	return fmt.Sprintf("%s (asked for: %s; rounded up)", text, asked)
}

// traced reports whether the rows were traced.
func (r *Result) traced() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Placement != nil || row.Failure != nil })
}

// located reports that a program was asked where the bytes are.
func (r *Result) located() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Located != nil })
}

// staged says how it is known that the bytes are not in the PCI device's
// memory.
func (row *Row) staged() string {
	if row.Placement != nil && row.Placement.Direct() == placement.No {
		return "the kernel put them into " + row.Placement.String()
	}
	if row.Located != nil && !row.Located.Found {
		return "--locate's program says: " + row.Located.words()
	}
	return ""
}

func (row *Row) where() string {
	switch {
	case row.Placement != nil:
		return row.Placement.String()
	case row.Failure != nil:
		return row.Failure.Detail
	}
	return ""
}

// details lists a failed row's cases.
func (row *Row) details(w io.Writer) error {
	if row.OK || row.Report == nil {
		return nil
	}
	notRun := 0
	for _, c := range row.Report.Cases {
		state := "ok"
		switch {
		case c.NotRun:
			notRun++
			continue
		case c.Skipped:
			state = "skipped"
		case !c.OK:
			state = "FAIL"
		}
		if err := human.Line(w, fmt.Sprintf("%s, %s: %s: %s", row.Spec, c.Name, state, c.Detail), "  ", "    "); err != nil {
			return err
		}
	}
	if notRun > 0 {
		return human.Line(w, fmt.Sprintf("%s: %d further cases were not run", row.Spec, notRun), "  ", "    ")
	}
	return nil
}
