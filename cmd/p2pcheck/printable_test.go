// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

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

// hostileNames are names of RDMA devices that a file system allows.
func hostileNames() []string {
	var out []string
	for _, control := range []string{"\n", "\r", "\r\n", "\t", "\v", "\f", "\a", "\b", "\x1b[2J", "\x1b]0;x\a", "\x1b[31m", "\u009b31m", "\u0085", "\u2028", "\u2029", "\u202e", "\u200b", "\ufeff", "\xff", "\xc0\xaf", "\x7f", "\x0e"} {
		out = append(out, "mlx5"+control+"PWNED: x")
	}
	return append(out,
		"mlx5\nFAIL     PWNED: x", "mlx5\n\nPWNED\n", "\nPWNED", "mlx5\n# HELP PWNED", "mlx5\nPWNED 1", "mlx5\"} 1\nPWNED{x=\"", "mlx5\\", "mlx5\"", "mlx5'; PWNED", "mlx5 PWNED",
		"mlx5|PWNED=1", "mlx5$(PWNED)", "mlx5`PWNED`", "<script>PWNED<", "mlx5&lt;PWNED", "mlx5%sPWNED%n", "mlx5\n<svg>PWNED", "mlx5\nnext: PWNED")
}

// No name begins a line of its own, in any format.
func TestHostileNames(t *testing.T) {
	testenv.Exhaustive(t)
	names := hostileNames()
	if len(names) < 40 {
		t.Fatal(len(names))
	}
	line := regexp.MustCompile(`(?m)^(FAIL |next: |# HELP )? *PWNED`)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.json")
	command("--json", "-o", good, "--root", testenv.Machines["small-hgx"]().Write(t))
	for i, name := range names {
		tree := testenv.Machines["small-hgx"]()
		root := tree.Write(t)
		// The RDMA device and its link in the class.
		class := filepath.Join(root, "sys/class/infiniband")
		target, err := os.Readlink(filepath.Join(class, "mlx5_1"))
		if err != nil {
			t.Fatal(err)
		}
		real, err := filepath.EvalSymlinks(filepath.Join(class, "mlx5_1"))
		if err != nil {
			t.Fatal(err)
		}
		moved := filepath.Join(filepath.Dir(real), name)
		if filepath.IsAbs(target) {
			target = moved
		} else {
			target = filepath.Join(filepath.Dir(target), name)
		}
		if err := errors.Join(os.Rename(real, moved), os.Remove(filepath.Join(class, "mlx5_1")), os.Symlink(target, filepath.Join(class, name))); err != nil {
			t.Fatal(err)
		}
		bad := filepath.Join(dir, fmt.Sprint(i, ".json"))
		command("--json", "-o", bad, "--root", root)
		for _, args := range [][]string{
			{"--root", root}, {"-v", "--root", root}, {"topo", "--root", root}, {"topo", "-v", "--root", root}, {"topo", "--svg", "--root", root}, {"topo", "--json", "--root", root},
			{"--json", "--root", root}, {"--format", "nagios", "--root", root}, {"--format", "npd", "--root", root}, {"--format", "prometheus", "--root", root},
			{"--format", "nfd", "--root", root}, {"--format", "dra", "--root", root}, {"why", "0000:13:00.0", name, "--root", root},
			{"diff", good, bad}, {"report", good, bad}, {"report", "--json", good, bad}, {"--nic", "nope", "--root", root}, {"--baseline", good, "--root", root},
		} {
			var out strings.Builder
			(&app{stdout: &out, stderr: &out}).run(args)
			if at := line.FindStringIndex(out.String()); at != nil {
				t.Errorf("%q, %q: %q", name, args, out.String()[max(0, at[0]-60):min(out.Len(), at[1]+40)])
			}
			if j := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); j >= 0 {
				t.Errorf("%q, %q: %q", name, args, out.String()[max(0, j-40):min(out.Len(), j+40)])
			}
		}
	}
}

// Nor does a name in a file of another machine's run, or the file's own name.
func TestHostileNamesInFiles(t *testing.T) {
	testenv.Exhaustive(t)
	line := regexp.MustCompile(`(?m)^(FAIL |next: |# HELP )? *PWNED`)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.json")
	root := testenv.Machines["small-hgx"]().Write(t)
	command("--json", "-o", good, "--root", root)
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range hostileNames() {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		bad := filepath.Join(dir, fmt.Sprint("x\nPWNED", i, ".json"))
		for _, what := range []string{"mlx5_1", "6.12.1", "NET-LINK", "nvidia", "7.2.12+deb13-amd64", "the NIC"} {
			if err := os.WriteFile(bad, []byte(strings.ReplaceAll(string(text), what, string(quoted[1:len(quoted)-1]))), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"diff", good, bad}, {"diff", bad, good}, {"report", good, bad}, {"report", "--json", good, bad}, {"--baseline", bad, "--root", root}} {
				var out strings.Builder
				(&app{stdout: &out, stderr: &out}).run(args)
				if at := line.FindStringIndex(out.String()); at != nil {
					t.Errorf("%q for %s, %q: %q", name, what, args, out.String()[max(0, at[0]-60):min(out.Len(), at[1]+40)])
				}
				if j := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); j >= 0 {
					t.Errorf("%q for %s, %q: %q", name, what, args, out.String()[max(0, j-40):min(out.Len(), j+40)])
				}
			}
		}
	}
}
