// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"slices"
	"strings"
)

// Rule says which parts of a file's contents a snapshot has.
type Rule struct {
	Keeps string // the parts that the snapshot has, in words
	keep  func(r *Redactor, data []byte) []byte
}

// Bare reports whether a snapshot has only the name of the file, directory or link.
func (u *Rule) Bare() bool { return u.keep == nil }

// Apply returns the parts of a file's contents that a snapshot has; nil for a Bare rule.
func (u *Rule) Apply(r *Redactor, data []byte) []byte {
	if u.keep == nil {
		return nil
	}
	return u.keep(r, data)
}

// shape keeps a text that an expression matches as a whole.
func shape(keeps string, is pattern) *Rule {
	return &Rule{keeps, func(r *Redactor, data []byte) []byte {
		if len(data) == 0 || is.Match(bytes.Trim(data, " \t\r\n\x00")) {
			return data
		}
		return r.other(data)
	}}
}

// other stands for contents of another shape than a rule keeps. Whether the text ended with a line's end is kept: without it, the
// file was cut.
func (r *Redactor) other(data []byte) []byte {
	text := none
	if strings.HasSuffix(string(data), "\n") {
		text += "\n"
	}
	return []byte(r.whole(string(data), text))
}

// oneOf keeps one of some words.
func oneOf(words ...string) *Rule {
	return &Rule{"one of " + strings.Join(words, ", "), func(r *Redactor, data []byte) []byte {
		if len(data) == 0 || slices.Contains(words, strings.TrimRight(string(data), "\n")) {
			return data
		}
		return r.other(data)
	}}
}

// byLine keeps lines: line returns what is kept of one without its end, and false for none of it.
func byLine(keeps string, line func(r *Redactor, line string) (string, bool)) *Rule {
	return &Rule{keeps, func(r *Redactor, data []byte) []byte {
		var out strings.Builder
		for one := range strings.Lines(string(data)) {
			body, whole := strings.CutSuffix(one, "\n")
			if text, ok := line(r, body); ok {
				out.WriteString(text)
				if whole {
					out.WriteByte('\n')
				}
			}
		}
		return []byte(out.String())
	}}
}

// each keeps the lines that an expression matches as a whole.
func each(keeps string, is pattern) *Rule {
	return byLine(keeps, func(_ *Redactor, line string) (string, bool) { return line, is.MatchString(line) })
}

// named keeps the name of a device, replaced if an administrator may have chosen it.
func named(of kind) *Rule {
	return byLine("the name of a device, replaced if an administrator chose it", func(r *Redactor, line string) (string, bool) {
		if line == "" {
			return line, true
		}
		return r.name(of, line), true
	})
}

// listed keeps several names, between blanks.
func listed(of kind) *Rule {
	return &Rule{"names of devices, replaced if an administrator chose them", func(r *Redactor, data []byte) []byte {
		return []byte(aWord.ReplaceAllStringFunc(string(data), func(word string) string { return r.name(of, word) }))
	}}
}

var aWord = expression(`[^\s]+`)

// field replaces the value of "KEY: VALUE" or "KEY VALUE" unless is matches it.
func field(line, key string, is pattern) (string, bool) {
	rest, ok := strings.CutPrefix(line, key)
	value := strings.TrimLeft(rest, ": \t")
	switch {
	case !ok || rest != "" && value == rest:
		return "", false
	case is.MatchString(value):
		return line, true
	}
	return line[:len(line)-len(value)] + none, true
}
