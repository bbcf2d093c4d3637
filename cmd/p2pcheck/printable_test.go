// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// No file of a machine makes a terminal do anything, whatever prints it.
func TestForeignControlCharacters(t *testing.T) {
	const bomb = "\x1b]0;owned\a\x1b[2J\u009b"
	tree := testenv.Machines["small-hgx"]()
	tree.Functions = strings.ReplaceAll(tree.Functions, "mlx5_1", "mlx5"+bomb)
	for name, text := range tree.Files {
		if renamed := strings.ReplaceAll(name, "mlx5_1", "mlx5"+bomb); renamed != name {
			delete(tree.Files, name)
			tree.Files[renamed] = text
		}
	}
	tree.Files["proc/sys/kernel/osrelease"] = "6.18.1" + bomb
	tree.Files["proc/cmdline"] = "pci=noats" + bomb
	root, dir := tree.Write(t), t.TempDir()
	good, bad := filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	command("--json", "-o", good, "--root", testenv.Machines["small-hgx"]().Write(t))
	command("--json", "-o", bad, "--root", root)
	if text, err := os.ReadFile(bad); err != nil || !json.Valid(text) || !strings.Contains(string(text), "owned") {
		t.Fatalf("%v: %s", err, text)
	}
	for _, args := range [][]string{
		{"-v", "--root", root}, {"topo", "--root", root}, {"topo", "--svg", "--root", root}, {"--format", "nagios", "--root", root}, {"--format", "npd", "--root", root},
		{"diff", good, bad}, {"report", bad, good}, {"--baseline", good, "--root", root, "--format", "nagios"}, {"explain", bomb}, {"--gpu", bomb, "--root", root},
	} {
		var out strings.Builder
		(&app{stdout: &out, stderr: &out, color: true}).run(args)
		text := strings.NewReplacer("\x1b[0m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "").Replace(out.String())
		if i := strings.IndexAny(text, "\x1b\a\u009b"); i >= 0 {
			t.Errorf("%q: %q", args, text[max(0, i-40):min(len(text), i+40)])
		}
	}
}
