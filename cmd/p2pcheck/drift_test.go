// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// A file must have one run: of two runs the reader would take only the first.
func TestMoreThanOneRun(t *testing.T) {
	dir := t.TempDir()
	root := testenv.Machines["small-hgx"]().Write(t)
	good := saved(t, dir, "good", testenv.Machines["small-hgx"]())
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "more")
	for behind, ok := range map[string]bool{"": true, "\n \n": true, string(text): false, "{}": false, "x": false, "]": false} {
		if err := os.WriteFile(file, append(text[:len(text):len(text)], behind...), 0o600); err != nil {
			t.Fatal(err)
		}
		want := cli.ExitUsage
		if ok {
			want = cli.ExitOK
		}
		for _, args := range [][]string{{"diff", good, file}, {"diff", file, good}, {"--baseline", file, "--root", root}, {"report", file}} {
			if r := command(args...); r.status != want || (r.err == "") != ok {
				t.Errorf("%.20q behind it, %q: %+v", behind, args[:1], r)
			}
		}
	}
}

// A device without memory of its own is worth a line, and neither worse nor better: a
// node whose display went is not drained.
func TestDriftOfWhatDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	var without []string
	whole := testenv.HGX()
	for line := range strings.Lines(whole.Functions) {
		if !strings.Contains(line, "driver:ast") {
			without = append(without, line)
		}
	}
	less := testenv.HGX()
	less.Functions = strings.Join(without, "")
	has, lacks := saved(t, dir, "has", whole), saved(t, dir, "lacks", less)
	for _, c := range []struct {
		before, after, says string
	}{
		{has, lacks, "1 difference: 1 changed\n  changed  gpu 0000:10:1e.0: not there, was ast (system)\n"},
		{lacks, has, "1 difference: 1 changed\n  changed  gpu 0000:10:1e.0: ast (system), was not there\n"},
	} {
		if r := command("diff", c.before, c.after); r.status != cli.ExitOK || r.out != c.says {
			t.Errorf("%+v", r)
		}
	}
	if r := command("--baseline", has, "--root", less.Write(t), "--format", "nagios"); r.status != 0 || strings.Contains(r.out, "baseline") {
		t.Errorf("%+v", r)
	}
	// One that counted is another matter.
	gpus := func(all ...result.GPU) result.Run { return result.Run{GPUs: all} }
	counts, display := result.GPU{Name: "a", Driver: "nvidia", Exporter: "nvidia", Counts: true}, result.GPU{Name: "a", Driver: "ast", Exporter: "system"}
	for _, c := range []struct {
		before, after result.Run
		want          string
	}{
		{gpus(counts), gpus(), "worse"}, {gpus(), gpus(counts), "better"}, {gpus(counts), gpus(display), "changed"}, {gpus(display), gpus(), "changed"},
	} {
		if d, _ := fleet.Compare(c.before, c.after); len(d) != 1 || d[0].Change != c.want {
			t.Errorf("%+v, want %s", d, c.want)
		}
	}
}

// The outcome of a pair that does not count is the matrix's.
func TestDriftOfPairsThatDoNotCount(t *testing.T) {
	one := func(p result.Pair) result.Run { return result.Run{Pairs: []result.Pair{p}} }
	counts, outside := result.Pair{GPU: "g", NIC: "n", Outcome: "direct", Predicted: "direct", Counts: true, Decision: result.Decision{Type: "bus address"}, NCCL: "PIX"}, result.Pair{GPU: "g", NIC: "n", Outcome: "staged", Predicted: "staged", Decision: result.Decision{Type: "none"}}
	if d, _ := fleet.Compare(one(counts), one(outside)); len(d) != 1 || d[0] != (result.Drift{What: "pair", Name: "g -> n", Before: "direct, bus address PIX", After: "-", Change: "changed"}) {
		t.Errorf("%+v", d)
	}
	for _, d := range [][2]result.Run{{one(outside), {}}, {{}, one(outside)}, {one(outside), one(outside)}} {
		if got, _ := fleet.Compare(d[0], d[1]); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// A device without a driver has no empty field.
func TestDriftNamesDrivers(t *testing.T) {
	after := result.Run{
		NICs: []result.NIC{{Name: "rxe0", Software: true, Importer: "pinned"}, {Name: "mlx5_0", Importer: "unknown"}, {Name: "mlx5_1", Driver: drivers.UnknownDriver, Importer: "unknown"}},
		GPUs: []result.GPU{{Name: "0000:13:00.0", Exporter: "unknown", Counts: true}},
	}
	all, _ := fleet.Compare(result.Run{}, after)
	var got []string
	for _, d := range all {
		got = append(got, d.Name+": "+d.After)
	}
	want := "0000:13:00.0: no driver (unknown); rxe0: software at no PCI function (pinned); mlx5_0: no driver at no PCI function (unknown); mlx5_1: driver unknown at no PCI function (unknown)"
	if strings.Join(got, "; ") != want {
		t.Errorf("%q", got)
	}
}
