// SPDX-License-Identifier: Apache-2.0

package human

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Columns is how wide text for people is at most, where a word is not longer by itself.
const Columns = 100

// Fold breaks a text into lines of at most [Columns]. The first line begins with first, the
// others with rest.
func Fold(text, first, rest string) string { return foldTo(Columns, text, first, rest) }

// Line writes a text in lines of at most [Columns], as [Fold] does, or in one line if w is [Wide].
func Line(w io.Writer, text, first, rest string) error {
	if _, wide := w.(Wide); wide {
		text = first + text
	} else {
		text = Fold(text, first, rest)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func foldTo(columns int, text, first, rest string) string {
	line, empty := first, true
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			lines = append(lines, line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return strings.Join(append(lines, line), "\n")
}
