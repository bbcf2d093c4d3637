// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// margin is before the second line and the next of a text that is folded.
const margin = "    "

// fold writes a text in lines that fit a screen. The first line begins with first, the others with
// rest. Commands and lines of the log are written without it: a reader copies them.
func (s Style) fold(b *strings.Builder, first, rest, text string) {
	if s.Names != nil {
		text = s.Names(text)
	}
	fmt.Fprintln(b, human.Fold(text, first, rest))
}

// head is fold for a line that begins with a word of a colour, behind some spaces.
func (s Style) head(b *strings.Builder, spaces, color, word, text string) {
	rest := margin
	if spaces != "" {
		rest = spaces + strings.Repeat(" ", len(word)+len(margin))
	}
	var line strings.Builder
	s.fold(&line, spaces+word+"  ", rest, text)
	b.WriteString(spaces + s.Paint(color, word) + strings.TrimPrefix(line.String(), spaces+word))
}

// label writes a line below a head, and its next lines behind its label: "change: ".
func (s Style) label(b *strings.Builder, label, text string) {
	s.fold(b, "  "+label, "  "+strings.Repeat(" ", len(label)), text)
}
