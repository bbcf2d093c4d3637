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
// run has a pair for each of its GPUs with each of its NICs.
func Text(w io.Writer, s Style, r result.Run) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	if r.Process != nil {
		fmt.Fprintf(&b, "%v: limits, capabilities, control group, /dev/shm and environment are its own\n", r.Process)
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
		noPairText(&b, r)
	} else {
		fmt.Fprintf(&b, "\n%s\n", r.Summary)
	}
	liveText(&b, s, r)
	if r.Baseline != "" {
		fmt.Fprintf(&b, "\nSince %s: %s\n", r.Baseline, DriftHead(r.Drift))
		Drift(&b, s, r.Drift)
		Uncompared(&b, r.Uncompared)
	}
	checksText(&b, s, r, told)
	if len(r.Checks) > 0 {
		fmt.Fprintf(&b, "\n%s\n", tallyText(r, s.Verbose))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
