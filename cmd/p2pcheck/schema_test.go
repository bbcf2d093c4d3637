// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/proofs"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// manifest is the first file of a snapshot, whose type package snapshot keeps to itself.
type manifest struct {
	Schema   string   `json:"schema"`    // "p2pcheck-snapshot/v1"
	Version  string   `json:"version"`   // of the program that wrote the snapshot
	LookedAt []string `json:"looked_at"` // patterns: a file that one matches and the archive lacks did not exist
}

// documents are the JSON documents that p2pcheck prints or reads.
func documents() []referencetest.Of {
	of := func(command string, results ...any) referencetest.Of {
		return referencetest.Of{
			Name: "p2pcheck/" + command, Title: "p2pcheck " + command + " --json", Type: cli.Document{}, Field: "result", Result: results,
			Fixed: map[string]any{"schema": schema, "command": command},
		}
	}
	check := of("check", result.Run{})
	check.Title = "p2pcheck --json"
	return []referencetest.Of{
		check, of("why", whyOutput{}), of("topo", topo.Topology{}), of("explain", explainResult{}),
		of("snapshot", snapshotResult{}, shownResult{}), of("diff", diffResult{}), of("report", reportResult{}),
		{Name: "p2pcheck/none", Title: "A document of --json where no subcommand ran: wrong usage, or --version", Type: cli.Document{}, Field: "result", Fixed: map[string]any{"schema": schema}},
		{Name: "p2pcheck/proofs", Title: "The file of p2pcheck --proofs", Type: proofs.Store{}, Fixed: map[string]any{"schema": proofs.Schema}},
		{Name: "p2pcheck/manifest", Title: "p2pcheck-snapshot.json, the first file of a snapshot", Type: manifest{}, Fixed: map[string]any{"schema": "p2pcheck-snapshot/v1"}},
	}
}

// docs/reference/schema/p2pcheck has a JSON Schema for each document. `make reference` writes them.
func TestSchemas(t *testing.T) {
	outcome := reflect.TypeFor[chain.Outcome]()
	types := referencetest.Types{
		Enums: referencetest.Enums(), Own: referencetest.Own(),
		Named: referencetest.Named(),
		Words: map[string][]string{
			"Step.result":       {"pass", "fail", "unknown", "skip"},
			"explanation.worst": {"fail", "warn"}, "Drift.change": result.Changes,
			"Drift.what": {"machine", "gpu", "nic", "pair", "proof", "check"},
		},
	}
	maps.Copy(types.Named, map[string]reflect.Type{
		"Pair.outcome": outcome, "Pair.predicted": outcome, "Registration.outcome": outcome, "Proof.outcome": outcome, "Pair.address": reflect.TypeFor[drivers.Address](),
		"Link.link": reflect.TypeFor[chain.Link](), "Link.state": reflect.TypeFor[chain.State](), "Decision.map_type": reflect.TypeFor[p2pdma.MapType](),
		"GPU.exporter": reflect.TypeFor[drivers.Class](), "NIC.importer": reflect.TypeFor[drivers.Kind](),
		"Finding.result": reflect.TypeFor[p2p.Result](), "Step.step": reflect.TypeFor[p2p.Rung](),
	})
	var names []string
	for _, d := range documents() {
		referencetest.Document(t, filepath.Join(referencetest.Schemas, d.Name+".json"), d.Schema(t, types), *update)
		d.Agrees(t, types)
		names = append(names, filepath.Base(d.Name)+".json")
	}
	referencetest.OnlyThese(t, filepath.Join(referencetest.Schemas, "p2pcheck"), "", names)
}

// The documents for machines of all shapes are as the schemas say.
func TestDocumentsAreAsTheSchemasSay(t *testing.T) {
	testenv.Exhaustive(t)
	var c referencetest.Checker
	printed := func(schema string, args ...string) []byte {
		t.Helper()
		out := []byte(command(args...).out)
		if bytes.Contains(out, []byte("\n  \"result\": null")) != slices.Contains(args, "/no/such/directory") {
			t.Errorf("p2pcheck %q: %s", args, out)
		}
		if err := c.Check("p2pcheck/"+schema, out); err != nil {
			t.Errorf("p2pcheck %q: %v", args, err)
		}
		return out
	}
	dir := t.TempDir()
	var kept []string
	for _, m := range testenv.Corpus(t) {
		root := m.Tree.Write(t)
		out := printed("check", "--json", "--root", root)
		printed("topo", "topo", "--json", "--root", root)
		if len(kept) < 12 {
			file := filepath.Join(dir, m.Name+".json")
			if err := os.WriteFile(file, out, 0o600); err != nil {
				t.Fatal(err)
			}
			kept = append(kept, file)
		}
	}
	hgx := testenv.Machines["hgx"]().Write(t)
	printed("why", "why", "--json", "--root", hgx, "nvidia", "mlx5_core")
	printed("explain", "explain", "--json")
	printed("report", "report", "--json", dir)
	printed("report", "report", "--json", "--since", dir, dir)
	a, b := kept[0], kept[1]
	printed("diff", "diff", "--json", a, b)
	printed("check", "--json", "--root", hgx, "--baseline", a)
	printed("check", "--json", "--root", "/no/such/directory")
	if err := c.Check("p2pcheck/none", []byte(command("--json", "--no-such-flag").out)); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	printed("snapshot", "snapshot", "--json", "--root", hgx, file)
	printed("snapshot", "snapshot", "--json", "--root", hgx, "--show")
	if err := c.Check("p2pcheck/manifest", firstFile(t, file)); err != nil {
		t.Error(err)
	}
}

// firstFile is the first file of a snapshot.
func firstFile(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(z)
	if _, err := archive.Next(); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A document that is not as its schema says is found out.
func TestSchemasRefuse(t *testing.T) {
	var c referencetest.Checker
	out := run(testenv.Machines["hgx"](), t, "--json", "--root", "ROOT").out
	if err := c.Check("p2pcheck/check", []byte(out)); err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		`"outcome": "direct"`:  `"outcome": "fine"`,
		`"command": "check"`:   `"command": "why"`,
		`"counts": true`:       `"counts": 1`,
		`"state": "holds"`:     `"State": "holds"`,
		`"errors": []`:         `"errors": null`,
		`"p2pdma": "yes"`:      `"p2pdma": true`,
		`"schema": "p2pcheck/`: `"schema": "p2pcheck/x`,
		`"exit_status": 0`:     `"exit_status": "0"`,
	} {
		if broken := strings.Replace(out, was, is, 1); broken == out {
			t.Errorf("the document does not have %s", was)
		} else if err := c.Check("p2pcheck/check", []byte(broken)); err == nil {
			t.Errorf("with %s it is as the schema says", is)
		}
	}
	var added map[string]any
	if err := json.Unmarshal([]byte(out), &added); err != nil {
		t.Fatal(err)
	}
	added["later"] = 1 // fields are added
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(added); err != nil {
		t.Fatal(err)
	}
	if err := c.Check("p2pcheck/check", b.Bytes()); err != nil {
		t.Error(err)
	}
}

// The examples beside the schemas are what the command prints. `make reference` writes them.
func TestExamples(t *testing.T) {
	var c referencetest.Checker
	machine, other := testenv.Machines["small-hgx"](), testenv.Machines["xe"]()
	dir := t.TempDir()
	kept := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	gpu, nic := "0000:13:00.0", "mlx5_0"
	few := []string{"--json", "--root", "ROOT", "--gpu", gpu, "--nic", nic, "--skip", "PCIE,NIC,NET,LIM,GPU,ISO,ENV,LIB,ACT,NV,AMD,INTEL,CTR,K8S,VM"}
	before := run(machine, t, few...).out
	machine.Files["proc/sys/kernel/numa_balancing"] = "1\n"
	after := run(machine, t, few...).out
	a, b := kept("a.json", before), kept("b.json", after)
	xe := kept("xe.json", run(other, t, "--json", "--root", "ROOT").out)
	nodes := strings.NewReplacer(dir+"/", "")
	for name, out := range map[string]string{
		"check":   before,
		"why":     run(machine, t, "why", gpu, nic, "--json", "--root", "ROOT").out,
		"topo":    run(machine, t, "topo", "--json", "--root", "ROOT", "--gpu", gpu, "--nic", nic).out,
		"explain": command("explain", "--json", "KRN-NUMA-BAL").out,
		"diff":    nodes.Replace(command("diff", "--json", a, b).out),
		"report":  nodes.Replace(command("report", "--json", a, b, xe).out),
		"none":    command("--json", "--no-such-flag").out,
	} {
		referencetest.Document(t, filepath.Join(referencetest.Schemas, "examples", "p2pcheck", name+".json"), []byte(out), *update)
		if err := c.Check("p2pcheck/"+name, []byte(out)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
