// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A report that cannot be written is refused before any work; one that came to
// nothing leaves the file of an earlier run as it was, and no other file.
func TestReportFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(filepath.Join(dir, "missing", "r.json"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	path := filepath.Join(dir, "r.json")
	if err := os.WriteFile(path, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(nil, errors.New("no NIC")); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "earlier" || len(left) != 1 {
		t.Errorf("%q, %v, %d files", data, err, len(left))
	}
	if err := (*File)(nil).Write(nil, nil); err != nil {
		t.Errorf("without --report: %v", err)
	}
}

// udev makes names of addresses; a report must not carry them.
func TestAnonymous(t *testing.T) {
	for name, want := range map[string]string{
		"mlx5_0": "mlx5_0", "rocep1s0f0": "rocep1s0f0", "enx0a1b2c3d4e5f": "enx-", "ibx506b4b0300f3b8a2": "ibx-", "": "",
	} {
		if got := anonymous(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

// Whatever a string says, what tells machines apart is taken out, and nothing else.
func TestAnonymizer(t *testing.T) {
	a := &anonymizer{plain: []string{"v0.0.0-20261124051750-46942c10c4ab"}}
	known := append(patterns("", []string{"debian", "rack7.example.org"}), patterns("(?i)", []string{"10.9.0.1", "fe80::1", "SN-4711-AB"})...)
	a.known = regexp.MustCompile(strings.Join(known, "|"))
	for in, want := range map[string]string{
		"cuda:GPU-01234567-89ab-cdef-0123-456789abcdef/vmm": "cuda:-/vmm",
		"rocm:GPU-0123456789abcdef":                         "rocm:-",
		"ze:01234567-89AB-cdef-0123-456789abcdef":           "ze:-",
		"MIG-01234567-89ab-cdef-0123-456789abcdef":          "-",
		"with ibx506b4b0300f3b8a2: no":                      "with ibx-: no",
		"node 506b:4b03:00f3:b8a2, 0a:1b:2c:3d:4e:5f":       "node -, -",
		"fe80:0000:0000:0000:0a1b:2cff:fe3d:4e5f":           "-",
		"10.9.0.1:7471 and 10.9.0.12, fe80::1":              "-:7471 and 10.9.0.12, -",
		"Debian 6.12 on debian, sn-4711-ab":                 "Debian 6.12 on -, -",
		"/home/rack7.example.org/x":                         "/home/-/x",
		"found in BAR 2 of 0000:03:00.0 at 0x380000200000":  "found in BAR 2 of 0000:03:00.0 at 0x380000200000",
		"cuda:0000:d1:00.0":                                 "cuda:0000:d1:00.0",
		"seed 14754006081610971614, 524288000000 bytes":     "seed 14754006081610971614, 524288000000 bytes",
		"v0.0.0-20261124051750-46942c10c4ab":                "v0.0.0-20261124051750-46942c10c4ab",
		"a \\ \"quoted\" <&> é GPU-0123456789abcdef":        "a \\ \"quoted\" <&> é -",
	} {
		if got := a.text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		doc, err := json.MarshalIndent(map[string]any{"debian": in, "n": []string{in}}, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Debian string
			N      []string
		}
		if err := json.Unmarshal(a.document(doc), &got); err != nil || got.Debian != want || len(got.N) != 1 || got.N[0] != want {
			t.Errorf("%q in a document became %+v, %v", in, got, err)
		}
	}
	if got := a.names([]string{"drm:card0", "cuda:GPU-01234567-89ab-cdef-0123-456789abcdef"}); len(got) != 1 || got[0] != "drm:card0" {
		t.Errorf("%q", got)
	}
	for s, want := range map[string]bool{"None": false, "0000:0000:0000:0000": false, "Default string": false, "MN2016X00307": true} {
		if telling(s) != want {
			t.Errorf("%q: telling is %v", s, !want)
		}
	}
}
