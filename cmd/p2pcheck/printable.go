// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable writes text that nobody's files can make a terminal obey: what is no
// character to be seen is written as an escape ("\x1b"). The colours are ours, and
// known by a mark that no file has.
type printable struct {
	io.Writer
	mark string // behind the ESC of a colour; "" if there are none
}

func (p printable) Write(b []byte) (int, error) {
	_, err := io.WriteString(p.Writer, p.text(string(b)))
	return len(b), err
}

func (p printable) text(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if rest, ok := strings.CutPrefix(s, "\x1b"+p.mark); ok && p.mark != "" {
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

// escape is text without anything that a terminal obeys.
func escape(s string) string { return printable{}.text(s) }
