// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Text writes a run for people: the matrix, then the reasons and the checks, the worst first. The
// run must have a pair for each of its GPUs with each of its NICs. The errors are those of w.
func Text(w io.Writer, s Style, r result.Run) error {
	var b strings.Builder
	head, notes, more := strings.Cut(r.Machine.String(), "\n")
	s.fold(&b, "", margin, head)
	if more {
		fmt.Fprintln(&b, notes)
	}
	if r.Process != nil {
		s.fold(&b, "", margin, fmt.Sprintf("%v: limits, capabilities, control group, /dev/shm and environment are its own", r.Process))
	}
	contradictions(&b, s, r)
	if len(r.Pairs) > 0 {
		b.WriteString("\n")
		matrix(&b, s, r, predictedCell)
		if slices.ContainsFunc(r.Pairs, result.Pair.Slow) {
			fmt.Fprintf(&b, "%s %s\n", SlowMark, SlowLegend)
		}
	}
	told := map[result.Remedy]bool{}
	for _, l := range looks {
		if l.outcome != chain.Direct || s.Verbose {
			reasons(&b, s, r, l, told)
		}
	}
	if r.Summary.Total() == 0 {
		noPairText(&b, s, r)
	} else {
		b.WriteString("\n")
		s.fold(&b, "", margin, r.Summary.String())
	}
	next(&b, s, r)
	liveText(&b, s, r)
	if r.Baseline != "" {
		b.WriteString("\n")
		s.fold(&b, "", margin, fmt.Sprintf("Since %s: %s", r.Baseline, DriftHead(r.Drift)))
		Drift(&b, s, r.Drift)
		Uncompared(&b, s, r.Uncompared)
	}
	checksText(&b, s, r, told)
	if len(r.Checks) > 0 {
		b.WriteString("\n")
		s.fold(&b, "", margin, tallyText(r, s.Verbose))
		if r.Summary.Total() == 0 {
			s.fold(&b, "", margin, noPair(r)) // the last line is read alone, too
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
