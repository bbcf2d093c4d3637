// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/bench"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/connect"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/devices"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/inspect"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/mesh"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/register"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/report"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/serve"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/tracing"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/verify"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/fields"
	"github.com/gpurdma/gpurdma/trace"
)

// docs/reference/json.md names every field that --json can print.
func TestEveryFieldIsDocumented(t *testing.T) {
	names := fields.Names(cli.Document{}, cli.Error{}, devices.Result{}, register.Result{}, verify.Result{}, report.Report{}, inspect.Result{}, tracing.Tracing{}, trace.Event{}, tracing.Result{},
		serve.Result{}, connect.Result{}, bench.Result{}, mesh.Result{}, mesh.Working{}, mesh.Report{})
	if len(names) < 50 {
		t.Errorf("only %d fields were found", len(names))
	}
	missing, err := fields.Missing("../../docs/reference/json.md", names)
	if err != nil || len(missing) > 0 {
		t.Errorf("not in docs/reference/json.md: %q, %v", missing, err)
	}
}
