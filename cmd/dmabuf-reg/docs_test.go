// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/fields"
	"github.com/gpurdma/gpurdma/trace"
)

// docs/json.md names every field that --json can print.
func TestEveryFieldIsDocumented(t *testing.T) {
	names := fields.Names(cli.Document{}, cli.Error{}, devicesResult{}, registerResult{}, verifyResult{}, report{}, inspectResult{}, tracing{}, trace.Event{}, traceResult{},
		serveResult{}, connectResult{}, benchResult{})
	if len(names) < 50 {
		t.Errorf("only %d fields were found", len(names))
	}
	missing, err := fields.Missing("../../docs/json.md", names)
	if err != nil || len(missing) > 0 {
		t.Errorf("not in docs/json.md: %q, %v", missing, err)
	}
}
