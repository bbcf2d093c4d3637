// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mit is a licence that is in no directory of Debian's.
const mit = `Copyright (c) 2020 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

// of is a module with these files.
func of(t *testing.T, files map[string]string) module {
	t.Helper()
	m := module{Path: "example.org/m", Dir: t.TempDir()}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(m.Dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(m.Dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.collect(filepath.Join(m.Dir, "a/b")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(m.Files)
	return m
}

func TestParagraph(t *testing.T) {
	apache, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	m := of(t, map[string]string{"LICENSE": string(apache), "a/COPYING.txt": mit, "NOTICE": "A notice.\n\nOf two lines.\n", "other/LICENSE": "of a package that is not linked", "license.go": "package m"})
	spdx, err := write(&text, []module{m})
	if err != nil || spdx != "Apache-2.0 AND MIT" {
		t.Errorf("%q, %v", spdx, err)
	}
	for _, want := range []string{
		"\nFiles: example.org/m/*\nCopyright: Copyright (c) 2020 Somebody\nLicense: Apache-2.0 and MIT\n",
		"\n Permission is hereby granted", "\n .\n The above copyright", "Comment: The module has a notice:\n A notice.\n .\n Of two lines.\n",
		"/usr/share/common-licenses/Apache-2.0.\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the file does not have %q: %s", want, &text)
		}
	}
	if strings.Contains(text.String(), "TERMS AND CONDITIONS") {
		t.Error("the file has the text that Debian has in common-licenses")
	}
}

// An unknown licence ends the build, so that a person reads it.
func TestUnknownLicence(t *testing.T) {
	for says, files := range map[string]map[string]string{
		"no licence":     {"README": "nothing"},
		"known licences": {"LICENSE": "You may do what I say, and nothing else, and I say it to nobody."},
	} {
		var text strings.Builder
		if _, err := write(&text, []module{of(t, files)}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", files, err)
		}
	}
}

// Of the programs themselves: each module is there, and so are Go and the BPF objects.
func TestPrograms(t *testing.T) {
	t.Chdir("../../..")
	t.Setenv("CGO_ENABLED", "0")
	dir := t.TempDir()
	out, spdx := filepath.Join(dir, "copyright"), filepath.Join(dir, "spdx")
	if err := run(out, spdx, []string{"./cmd/p2pcheck"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Files: std/*", "Files: github.com/cilium/ebpf/*", "Files: github.com/spf13/cobra/*", "Files: trace/internal/objects/bpf/*"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if ids, err := os.ReadFile(spdx); err != nil || string(ids) != "Apache-2.0 AND MIT AND BSD-3-Clause AND (GPL-2.0-only OR BSD-2-Clause)\n" {
		t.Errorf("%q, %v", ids, err)
	}
	for _, bad := range [][]string{nil, {"./cmd/none-such"}} {
		if err := run(out, "", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	two, err := identify([]byte(readFile(t, "LICENSES/BSD-2-Clause.txt")))
	if err != nil || !slices.Equal(two, []string{"BSD-2-Clause"}) {
		t.Errorf("LICENSES/BSD-2-Clause.txt is %q, %v", two, err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
