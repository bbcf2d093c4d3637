// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/pagetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tutorial is the page whose commands the test runs.
const tutorial = "../../docs/tutorials/check-a-cluster.md"

// nodes are the machines whose snapshots the tutorial has, by the names of the files.
func nodes() map[string]testenv.Tree {
	good, acs := testenv.Machines["small-hgx"](), testenv.Machines["small-hgx"]()
	acs.Functions = strings.ReplaceAll(acs.Functions, "acs=0x00", "acs=0x1d")
	return map[string]testenv.Tree{"good": good, "acs": acs}
}

// The snapshots of the tutorial say what the machines say that they were taken of.
func TestTutorialNodes(t *testing.T) {
	for name, tree := range nodes() {
		file := filepath.Join("../../docs/tutorials/nodes", name+".snapshot")
		root := tree.Write(t)
		if *update {
			if r := command("snapshot", file, "--root", root); r.status != cli.ExitOK {
				t.Fatal(r.err)
			}
		}
		taken, read := command("--snapshot", file, "--skip", "all"), command("--root", root, "--skip", "all")
		_, want, _ := strings.Cut(strings.ReplaceAll(read.out, root, ""), "\n")
		_, got, _ := strings.Cut(taken.out, "\n")
		if unflagged(got) != unflagged(want) || got == "" {
			t.Errorf("%s:\n%s\nis not of the machine:\n%s", file, got, want)
		}
	}
}

// The commands of the tutorial that need no cluster print what it says.
func TestTutorialCluster(t *testing.T) {
	dir := t.TempDir()
	docs, err := filepath.Abs("../../docs")
	if err == nil {
		err = os.Symlink(docs, filepath.Join(dir, "docs"))
	}
	if err != nil {
		t.Fatal(err)
	}
	pagetest.Program(t, dir, "bin/p2pcheck", asCommand)
	n := 0
	for _, s := range pagetest.Read(t, tutorial).Steps() {
		if s.Prompt == "#" {
			break // from here on it takes a cluster: deploy/packaging
		}
		if strings.HasPrefix(s.Command, "go build") || strings.HasPrefix(s.Command, "PATH=") {
			continue // the test binary is the program
		}
		n++
		out := pagetest.Run(t, s.Command, dir)
		if err := s.Check(out); err != nil {
			t.Error(err)
		}
	}
	if n != 8 {
		t.Errorf("%d commands", n)
	}
}
