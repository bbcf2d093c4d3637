// SPDX-License-Identifier: Apache-2.0

package nodelist

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"gpu1":                       "gpu1",
		"gpu1,gpu2":                  "gpu1 gpu2",
		"gpu[1-3]":                   "gpu1 gpu2 gpu3",
		"gpu[01-03,7],login":         "gpu01 gpu02 gpu03 gpu7 login",
		"gpu[009-011]":               "gpu009 gpu010 gpu011",
		"gpu[9-11]":                  "gpu9 gpu10 gpu11",
		"rack[1-2]node[08-09]":       "rack1node08 rack1node09 rack2node08 rack2node09",
		"a[1-2].example.com,b[5]-ib": "a1.example.com a2.example.com b5-ib",
		"n[1-2]:7000":                "n1:7000 n2:7000",
	} {
		got, err := Expand(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
}

func TestExpandRefuses(t *testing.T) {
	for list, says := range map[string]string{
		"":                                   "empty",
		"a,,b":                               "empty",
		"a,":                                 "empty",
		"a[1-":                               "not closed",
		"a[1-2":                              "not closed",
		"a1-2]":                              "not open",
		"a[[1-2]]":                           "opened in another one",
		"a[]":                                "no number",
		"a[x-2]":                             "no number",
		"a[1-]":                              "no number",
		"a[-2]":                              "no number",
		"a[3-1]":                             "counts down",
		"a[1-2-3]":                           "no number",
		"a[+1]":                              "no number",
		"a[0-4096]":                          "more than 4096",
		"a[0-999999999]":                     "more than 4096",
		"a[1-99999999999999999999]":          "no number",
		"a[1-100]b[1-100]":                   "more than 4096",
		"a[1-4096],b":                        "more than 4096",
		strings.Repeat("a", 256):             "more than 255",
		strings.Repeat("a", 1<<20) + "[1]":   "bytes",
		"a" + strings.Repeat("[1-64]", 1000): "more than 4096",
	} {
		if got, err := Expand(list); err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 300 {
			t.Errorf("%.40q: %d names, %.300v; want %q", list, len(got), err, says)
		}
	}
}

// A list that the parser takes has names within the bounds, and the parser does not panic.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"gpu[01-03,7],login", "a[1-2]b[3-4]", "a[", "]", "[1]", "a[1-4096]", ",", "x[00000000-1]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Expand(list)
		if err != nil {
			return
		}
		if len(names) == 0 || len(names) > MaxNodes {
			t.Fatalf("%q: %d names", list, len(names))
		}
		for _, n := range names {
			if n == "" || len(n) > maxName || strings.ContainsAny(n, "[],") {
				t.Fatalf("%q: name %q", list, n)
			}
		}
		again, err := Expand(strings.Join(names, ","))
		if err != nil && len(strings.Join(names, ",")) <= maxText || err == nil && !slices.Equal(again, names) {
			t.Fatalf("%q: %q again: %v", list, again, err)
		}
	})
}

func TestParse(t *testing.T) {
	for words, want := range map[string]string{
		"gpu1 gpu2:9":             "gpu1:7472 gpu2:9",
		"n[1-2]:9 10.0.0.1":       "n1:9 n2:9 10.0.0.1:7472",
		"fe80::1 [fe80::2]:7":     "[fe80::1]:7472 [fe80::2]:7",
		"127.0.0.1:1 localhost":   "127.0.0.1:1 localhost:7472",
		"gpu-1.example.com node_": "gpu-1.example.com:7472 node_:7472",
	} {
		nodes, err := Parse(strings.Fields(words), "7472")
		var got []string
		for _, n := range nodes {
			got = append(got, n.Addr())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v", words, got, err)
		}
	}
	for words, says := range map[string]string{
		"gpu1 gpu1":           "named twice",
		"n[1-2] n2:7472":      "named twice",
		"gpu1 127.0.0.1":      "means another machine",
		"gpu1:0":              "no port",
		"gpu1:x":              "no port",
		"gpu1:70000":          "no port",
		"gpu1:7:8":            "no port",
		":7":                  "no host",
		"-x":                  "no host",
		"gpu\x1bc":            "no host",
		"rdma_cm://1.2.3.4:5": "no port",
		"[fe80::1]":           "no node",
		"[nope]:1":            "no IPv6 address",
		"gpu1/24":             "no host",
		"n[1-4096] m":         "more than 4096",
		"n[1-3000] m[1-3000]": "more than 4096",
	} {
		if _, err := Parse(strings.Fields(words), "7472"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q", words, err, says)
		}
	}
}

func TestRead(t *testing.T) {
	got, err := Read(strings.NewReader("# nodes\ngpu1 gpu2:9\n\n  n[1-2] # two\n"))
	if err != nil || fmt.Sprint(got) != "[gpu1 gpu2:9 n[1-2]]" {
		t.Errorf("%q, %v", got, err)
	}
	for text, says := range map[string]string{
		"":                           "empty",
		"# nothing\n":                "empty",
		strings.Repeat("x", 1<<20+1): "more than",
		strings.Repeat("x\n", 1<<20): "more than",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
