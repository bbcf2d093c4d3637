// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Writer writes text without control characters: a character that a terminal does not show is written
// as an escape ("\x1b"). The colours of [Colors] pass, and the writer knows them by the
// mark, which no file of a machine contains.
type Writer struct {
	io.Writer
	Mark string // follows the ESC of a colour; "" if there are no colours
}

// Write implements io.Writer. It returns len(b), also if the text with escapes is longer.
func (p Writer) Write(b []byte) (int, error) {
	_, err := io.WriteString(p.Writer, p.text(string(b)))
	return len(b), err
}

func (p Writer) text(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if rest, ok := strings.CutPrefix(s, "\x1b"+p.Mark); ok && p.Mark != "" {
			b.WriteByte('\x1b')
			s = rest
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[0]), 16))
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
}

// Escape returns a text with escapes in place of control characters, except for line
// feeds and tabs.
func Escape(s string) string { return Writer{}.text(s) }
