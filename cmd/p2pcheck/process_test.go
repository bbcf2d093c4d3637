// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A report on another process names the process.
func TestReportNamesProcess(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	tree.Files["proc/4711/comm"] = "train\n"
	root := tree.Write(t)
	for pid, want := range map[int]string{4711: "process 4711 (train): limits", 4712: "process 4712: limits", 0: ""} {
		a := &app{source: machine.Source{Root: root, Process: pid}}
		m := a.source.Open()
		found, _ := a.check(m, nil, nil)
		var text strings.Builder
		if err := found.text(&text, a); err != nil || strings.Contains(text.String(), "\nprocess ") != (pid != 0) || !strings.Contains(text.String(), want) {
			t.Errorf("%d: %v, %s", pid, err, &text)
		}
		data, err := json.Marshal(found)
		if named := fmt.Sprintf(`"process":{"pid":%d,`, pid); err != nil || strings.Contains(string(data), named) != (pid != 0) {
			t.Errorf("%d: %v, %s", pid, err, data)
		}
	}
}

// A snapshot keeps the capabilities that a check goes by.
func TestSnapshotKeepsCapabilities(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	tree.Files["proc/self/limits"] = "Max locked memory         65536              65536              bytes\n"
	tree.Files["proc/self/status"] = "Name:\tx\nCapEff:\t0\nCapBnd:\t0000000000004000\n"
	root := tree.Write(t)
	file := t.TempDir() + "/snapshot"
	if r := command("snapshot", file, "--root", root); r.err != "" {
		t.Fatal(r)
	}
	for _, args := range [][]string{{"--root", root}, {"--snapshot", file}} {
		if r := command(args...); !strings.Contains(r.out, "has to be ambient") {
			t.Errorf("%v: %s", args, r.out)
		}
	}
}

// NVIDIA's proprietary modules are named, and are what has to change.
func TestProprietaryModules(t *testing.T) {
	r := run(bad(), t, "--root", "ROOT")
	if !strings.Contains(r.out, "NVIDIA's proprietary module, which exports no dma-bufs") || !strings.Contains(r.out, "change: install the open modules") || strings.Contains(r.out, "prove it") {
		t.Error(r.out)
	}
}

// A sysfs and a procfs have no log, and a sysfs alone has no symbols: the text does not propose to
// copy them again.
func TestDirectoriesHaveNoLog(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	r := run(tree, t, "--sysfs", "ROOT/sys", "--proc", "ROOT/proc", "-v")
	if strings.Contains(r.out, "not a directory") || !strings.Contains(r.out, "a sysfs and a procfs have no log") {
		t.Error(r.out)
	}
	if r := run(tree, t, "--sysfs", "ROOT/sys", "--kernel", "6.12.1", "-v"); strings.Contains(r.out, "not a directory") || !strings.Contains(r.out, "no procfs was given: add --proc") {
		t.Error(r.out)
	}
}
