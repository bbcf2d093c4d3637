// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
)

// Document is the JSON output of every command.
type Document struct {
	Schema  string  `json:"schema"` // name and major version: fields are only added within one
	Command string  `json:"command"`
	Version string  `json:"version"`
	OK      bool    `json:"ok"`
	Status  int     `json:"exit_status"`
	Result  any     `json:"result"` // by command; null if it did not get that far
	Errors  []Error `json:"errors"` // empty if OK
	OneLine bool    `json:"-"`      // after other lines, each of which is an object
}

// Write prints the document.
func (d Document) Write(w io.Writer) error {
	if d.Errors == nil {
		d.Errors = []Error{}
	}
	e := json.NewEncoder(w)
	if !d.OneLine {
		e.SetIndent("", "  ")
	}
	e.SetEscapeHTML(false)
	return e.Encode(d)
}
