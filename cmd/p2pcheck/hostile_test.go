// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A hostile file in place of a run's JSON crashes no command that reads it. A file that is cut off or
// empty is no good node.
func TestHostileJSON(t *testing.T) {
	var seeds []string
	add := func(text string) { seeds = append(seeds, text) }
	dir := t.TempDir()
	root := bad().Write(t)
	whole := filepath.Join(dir, "whole.json")
	command("--json", "-o", whole, "--root", testenv.Machines["small-hgx"]().Write(t))
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	add(string(text))
	add(string(text[:len(text)/2]))
	const head = `","command":"check","exit_status":0,"result":`
	for _, result := range []string{
		`null}`, `[]}`, `{}}`, `{"pairs":null,"checks":null}}`, `{"pairs":[null],"checks":[null],"gpus":[null],"nics":[null]}}`, `{"pairs":[{}],"checks":[{}]}}`,
		`{"pairs":[{"gpu":"\u001b[2J","nic":"\u0000","outcome":"direct"}]}}`, `{"pairs":[{"outcome":"unknown","decides":"\u001b[2J","counts":true,"links":[{"link":"\u001b[2J","state":"\u0000","why":["\u001b[2J"]},null]}]}}`,
		`{"pairs":[{"outcome":"direct","decides":"proof","predicted":"odd","counts":true,"links":[{"link":"log","state":"breaks"}]}]}}`, `{"checks":[{"id":"NO-SUCH","result":"odd","scope":["a","a"]}]}}`,
		`{"live":{"tried":-1,"contradicted":-9223372036854775808}}}`, `{"machine":{"kernel":"` + strings.Repeat("x", 1<<16) + `"}}}`, `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`,
	} {
		for _, schema := range []string{"p2pcheck/v1", "p2pcheck/v2"} {
			add(`{"schema":"` + schema + head + result)
		}
	}
	for _, odd := range []string{"", "null", "[]", "1", `"x"`, "\xff\xfe", "{}{}", `{"schema":1}`} {
		add(odd)
	}
	for _, hostile := range seeds {
		file := filepath.Join(t.TempDir(), "hostile.json")
		if err := os.WriteFile(file, []byte(hostile), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"diff", whole, file}, {"diff", file, whole}, {"report", file}, {"report", whole, file}, {"--baseline", file, "--root", root}} {
			r := command(args...)
			if r.status < cli.ExitOK || r.status > cli.ExitUnavailable || strings.ContainsAny(r.out+r.err, "\x1b\x00") {
				t.Errorf("%q: status %d", args, r.status)
			}
			if r.status == cli.ExitOK && args[0] == "--baseline" {
				t.Error("a bad machine is good by its baseline")
			}
		}
	}
}
