// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
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
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/trace"
)

// event is what happened to a record. The explanation of a refusal is beside the fields of trace.Event.
type event struct {
	PlainEvent
	Failure *trace.Failure `json:"failure,omitempty"` // why a registration or a mapping was refused
}

// PlainEvent is a trace.Event without the method by which it writes itself.
type PlainEvent trace.Event

// documents are the JSON documents that dmabuf-reg prints.
func documents() []referencetest.Of {
	of := func(command string, results ...any) referencetest.Of {
		return referencetest.Of{
			Name: "dmabuf-reg/" + command, Title: "dmabuf-reg " + command + " --json", Type: cli.Document{}, Field: "result", Result: results,
			Fixed: map[string]any{"schema": app.Schema, "command": command},
		}
	}
	return []referencetest.Of{
		of("devices", devices.Result{}), of("register", register.Result{}), of("verify", verify.Result{}), of("inspect", inspect.Result{}),
		of("trace", tracing.Result{}), of("explain", tracing.Result{}),
		of("serve", serve.Result{}), of("connect", connect.Result{}), of("bench", bench.Result{}), of("mesh", mesh.Result{}, mesh.Working{}),
		{Name: "dmabuf-reg/none", Title: "A document of --json where no subcommand ran: wrong usage, or --version", Type: cli.Document{}, Field: "result", Fixed: map[string]any{"schema": app.Schema}},
		{Name: "dmabuf-reg/tracing", Title: "The first line of dmabuf-reg trace --json", Type: tracing.Tracing{}, Fixed: map[string]any{"event": "tracing"}},
		{Name: "dmabuf-reg/event", Title: "A line of dmabuf-reg trace --json between the first and the last", Type: event{}},
		{Name: "dmabuf-reg/report", Title: "The file of dmabuf-reg verify --report", Type: report.Report{}, Field: "verify", Result: []any{verify.Result{}}, Fixed: map[string]any{"schema": report.Schema}},
		{Name: "dmabuf-reg/mesh-report", Title: "The file of dmabuf-reg mesh --report", Type: mesh.Report{}, Fixed: map[string]any{"schema": mesh.ReportSchema}},
	}
}

// docs/reference/schema/dmabuf-reg has a JSON Schema for each document. `make reference` writes them.
func TestSchemas(t *testing.T) {
	types := referencetest.Types{
		Enums: referencetest.Enums(), Own: referencetest.Own(), Named: referencetest.Named(),
		Words:    map[string][]string{"Error.kind": cli.Kinds},
		Nullable: []string{"Buffer.attached"},
	}
	types.Named["Failure.cause"] = reflect.TypeFor[fault.Cause]()
	types.Named["Fault.cause"] = reflect.TypeFor[control.Cause]()
	var names []string
	for _, d := range documents() {
		referencetest.Document(t, filepath.Join(referencetest.Schemas, d.Name+".json"), d.Schema(t, types), *update)
		d.Agrees(t, types)
		names = append(names, filepath.Base(d.Name)+".json")
	}
	referencetest.OnlyThese(t, filepath.Join(referencetest.Schemas, "dmabuf-reg"), "", names)
}

// schemas are the schemas in the repository.
var schemas referencetest.Checker

// asTheSchemaSays holds a document of --json against its schema.
func asTheSchemaSays(data []byte) error {
	var d struct{ Command string }
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("%w in:\n%s", err, data)
	}
	name := "dmabuf-reg/" + d.Command
	if !slices.ContainsFunc(documents(), func(of referencetest.Of) bool { return of.Fixed["command"] == d.Command && of.Name == name }) {
		name = "dmabuf-reg/none" // the command line names no subcommand, or help
	}
	if err := schemas.Check(name, data); err != nil {
		return fmt.Errorf("%w in:\n%s", err, data)
	}
	return nil
}

// lineAsTheSchemaSays holds a line of `trace --json` against its schema.
func lineAsTheSchemaSays(line []byte) error {
	var d struct{ Schema, Event string }
	if err := json.Unmarshal(line, &d); err != nil {
		return fmt.Errorf("%w in:\n%s", err, line)
	}
	switch {
	case d.Schema != "":
		return asTheSchemaSays(line)
	case d.Event == "tracing":
		return schemas.Check("dmabuf-reg/tracing", line)
	}
	return schemas.Check("dmabuf-reg/event", line)
}

// A document that is not as its schema says is found out.
func TestSchemasRefuse(t *testing.T) {
	const good = `{"schema":"dmabuf-reg/v1","command":"inspect","version":"v","ok":true,"exit_status":0,"errors":[],
		"result":{"pid":0,"buffers":[{"inode":1,"size":4096,"exporter":"udmabuf","name":"","count":1,"holders":[],"attached":null}],"unknown":[]}}`
	if err := schemas.Check("dmabuf-reg/inspect", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		`"attached":null`: `"attached":"none"`, `"unknown":[]`: `"unknown":null`, `"inode":1`: `"inode":"1"`, `"ok":true,`: ``,
		`"errors":[]`: `"errors":[{"message":"m"}]`, `"dmabuf-reg/v1"`: `"dmabuf-reg/v2"`, `"pid":0`: `"PID":0`,
	} {
		if broken := strings.Replace(good, was, is, 1); broken == good {
			t.Errorf("the document does not have %s", was)
		} else if err := schemas.Check("dmabuf-reg/inspect", []byte(broken)); err == nil {
			t.Errorf("with %s in place of %s it is as the schema says", is, was)
		}
	}
}
