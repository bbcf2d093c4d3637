// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
)

// Document is the JSON output of a command. All commands have these fields.
type Document struct {
	// Schema is the name and major version of the document's form: fields are only added within one.
	Schema string `json:"schema"`
	// Command is the subcommand; "" if the command line names none, or was not understood, and of
	// --version.
	Command string `json:"command"`
	Version string `json:"version"` // of the program
	// OK says that the command has done its work and everything was right. It is false without errors
	// where p2pcheck finds a pair that is not direct.
	OK     bool `json:"ok"`
	Status int  `json:"exit_status"` // the exit status of the command; docs/reference has the meaning of each
	// Result is what the command found or did, in the form of this command. After a failure it has
	// what there was until then; null if there was nothing.
	Result any `json:"result"`
	// Errors are the things that failed, could not be read, or are missing; empty if OK.
	Errors  []Error `json:"errors"`
	OneLine bool    `json:"-"` // after other lines, each of which is an object
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
