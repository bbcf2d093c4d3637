// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Shown is a file of a snapshot, for a person to read before it is given away.
type Shown struct {
	Name  string `json:"file"`  // the name of the file in the archive
	Keeps string `json:"keeps"` // which parts of the file the archive has; "" if it has only the name
	// Text is the file's contents in the archive. Registers are in hexadecimal, without lines of
	// zeros.
	Text   string `json:"text"`
	Link   string `json:"link"`   // the target of a symbolic link; "" of a file
	Unread bool   `json:"unread"` // the machine has the file, and it could not be read
}

// Show yields the contents of the archive, file by file. Keeps is set only with WithRules.
func (s *Snapshot) Show() iter.Seq[Shown] {
	return func(yield func(Shown) bool) {
		for name, f := range s.ofMachine() {
			as, f := s.renamed(name, f)
			out := Shown{Name: "/" + as, Link: f.Link, Unread: f.Unreadable(as), Text: legible(f)}
			if rule := s.rules[name]; rule != nil {
				out.Keeps = rule.Keeps
			}
			if out.Unread {
				out.Link = ""
			}
			if !yield(out) {
				return
			}
		}
	}
}

// legible is the contents of a file as text.
func legible(f files.File) string {
	data := f.Data
	if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
		if plain, err := io.ReadAll(io.LimitReader(z, fileLimit)); err == nil {
			data = plain
		}
	}
	data = bytes.ReplaceAll(data, []byte{0}, []byte("\n")) // between variables
	if utf8.Valid(data) && !bytes.ContainsFunc(data, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' }) {
		return string(data)
	}
	var out strings.Builder
	const row = 16
	for at := 0; at < len(f.Data); at += row {
		if line := f.Data[at:min(at+row, len(f.Data))]; bytes.Trim(line, "\x00") != nil {
			fmt.Fprintf(&out, "%03x: %s\n", at, hex.EncodeToString(line))
		}
	}
	return out.String()
}
