// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/result"
)

var changeColors = map[string]string{"worse": "31", "unknown": "33", "changed": "33", "better": "32"}

// DriftHead returns the numbers of differences of each kind, in words.
func DriftHead(all []result.Drift) string {
	var of []string
	for _, change := range result.Changes {
		n := 0
		for _, d := range all {
			if d.Change == change {
				n++
			}
		}
		if n > 0 {
			of = append(of, fmt.Sprintf("%d %s", n, change))
		}
	}
	text := human.Plural(len(all), "difference")
	if len(of) > 0 {
		text += ": " + strings.Join(of, ", ")
	}
	return text
}

// Uncompared writes that a comparison leaves out n checks. It writes nothing for 0.
func Uncompared(b *strings.Builder, s Style, n int) {
	if n > 0 {
		s.fold(b, "  ", margin, human.Plural(n, "check")+" not compared: one of the two runs did not carry them out, or they do not apply to it")
	}
}

// Drift writes the differences of two runs, one a line.
func Drift(b *strings.Builder, s Style, all []result.Drift) {
	for _, d := range all {
		s.head(b, "  ", changeColors[d.Change], fmt.Sprintf("%-7s", d.Change), d.Difference())
	}
}
