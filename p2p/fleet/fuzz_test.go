// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// No document crashes the functions that read runs, and no message about one moves a cursor.
func FuzzRead(f *testing.F) {
	const good = `{"schema": "p2pcheck/v2", "command": "check", "exit_status": 1, "result": {"machine": {"kernel": "6.12.1", "processor": "x"}, "gpus": [{"name": "0000:01:00.0", "driver": "nvidia"}], "nics": [{"name": "mlx5_0"}],
		"pairs": [{"gpu": "0000:01:00.0", "nic": "mlx5_0", "outcome": "staged", "predicted": "staged", "counts": true, "decides": "attach", "why": ["x"], "remedy": {"change": "y", "command": "z"}, "links": [{"link": "route", "state": "holds", "why": ["a"], "evidence": [{"file": "/sys/x", "value": "1"}]}]}],
		"checks": [{"id": "KRN-VERSION", "result": "fail", "scope": ["a"], "read": "1", "expected": "2", "where": ["/x"], "remedy": null}]}}`
	base, err := Read(strings.NewReader(good))
	if err != nil {
		f.Fatal(err)
	}
	seeds := []string{good, "", "null", "[]", "1", `"x"`, "\xff\xfe", "{}{}", `{"schema":1}`, `{"schema":"p2pcheck/v1"}`, strings.Repeat(`{"result":`, 100), good[:len(good)/2]}
	for _, cut := range []string{`"6.12.1"`, `"mlx5_0"`, `"staged"`, `"holds"`, `"KRN-VERSION"`, `"fail"`, `null`, `true`} {
		for _, now := range []string{`null`, `[]`, `{}`, `-1`, `1e999`, `"\u001b[2J"`, `"\u0000"`, `"a\nb"`, `"` + strings.Repeat("x", 300) + `"`} {
			seeds = append(seeds, strings.ReplaceAll(good, cut, now))
		}
	}
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := Read(bytes.NewReader(data))
		texts := []string{}
		if err != nil {
			texts = append(texts, err.Error())
		} else {
			for _, both := range [][2]result.Run{{base, run}, {run, base}, {run, run}} {
				drifts, _ := Compare(both[0], both[1])
				for _, d := range drifts {
					texts = append(texts, d.Difference())
				}
			}
		}
		var m Merge
		for _, node := range []string{"a", "b"} {
			if err := m.AddFrom(node, bytes.NewReader(data)); err != nil {
				m.AddUnread(node, err)
			}
		}
		var out strings.Builder
		if err := m.Report().Text(&out, render.Style{}); err != nil {
			t.Error(err)
		}
		for _, text := range append(texts, out.String()) {
			if strings.ContainsAny(text, "\x1b\x00\r") {
				t.Errorf("%q", text)
			}
		}
	})
}
