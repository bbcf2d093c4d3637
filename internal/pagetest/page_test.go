// SPDX-License-Identifier: Apache-2.0

package pagetest

import (
	"strings"
	"testing"
)

func TestAnchorsAreGitHubs(t *testing.T) {
	p := Parse("x.md", "# What `make test` leaves out\n```\n# no heading\n[a](b)\n```\n## Go: 1.2, and _more_\n## Go: 1.2, and _more_\n`[c](d)`[e](f)\n")
	for _, want := range []string{"what-make-test-leaves-out", "go-12-and-_more_", "go-12-and-_more_-1"} {
		if !p.Anchors[want] {
			t.Errorf("no %q in %v", want, p.Anchors)
		}
	}
	if len(p.Anchors) != 3 || len(p.Blocks) != 1 || p.Blocks[0].Line != 3 || strings.Contains(p.Prose, "(b)") || strings.Contains(p.Prose, "(d)") || !strings.Contains(p.Prose, "(f)") {
		t.Errorf("%+v", p)
	}
}

const transcript = "```console\n$ make vm \\\n    CMD=x\n# dmabuf-reg verify\nNIC   TOOK\nrxe0  1.29ms  0x98c\n…\nseed 12, 22.2s\nPASS: 1 of 1\n```\n"

func TestSteps(t *testing.T) {
	steps := Parse("x.md", transcript).Steps()
	if len(steps) == 2 && (steps[0].Guest() != "" || (Step{Command: "make vm KERNEL=7.3 CMD='a; b'"}).Guest() != "a; b") {
		t.Error("Guest")
	}
	if len(steps) != 2 || steps[0].Command != "make vm CMD=x" || steps[0].Prompt != "$" || len(steps[0].Want) != 0 ||
		steps[1].Command != "dmabuf-reg verify" || steps[1].Prompt != "#" || steps[1].Line != 4 || len(steps[1].Want) != 5 {
		t.Fatalf("%+v", steps)
	}
	for out, good := range map[string]bool{
		"NIC   TOOK\nrxe0  867.5µs  0x1\nanother\nseed 77, 1m2s\nPASS: 1 of 1\n": true,
		"NIC   TOOK\nrxe0  3ms  0x1\nseed 77, 900ms\nPASS: 1 of 1\n":             true,
		"NIC   TOOK\nrxe1  3ms  0x1\nseed 77, 900ms\nPASS: 1 of 1\n":             false,
		"NIC   TOOK\nrxe0  3ms  0x1\nseed 77, 900ms\nPASS: 0 of 1\n":             false,
		"NIC   TOOK\nrxe0  3ms  0x1\nPASS: 1 of 1\nseed 77, 900ms\n":             false,
		"more\nNIC   TOOK\nrxe0  3ms  0x1\nseed 77, 900ms\nPASS: 1 of 1\n":       false,
		"NIC   TOOK\nrxe0  3ms  0x1\nseed 77, 900ms\nPASS: 1 of 1\nmore\n":       false,
	} {
		if err := steps[1].Check(out); (err == nil) != good {
			t.Errorf("%q: %v", out, err)
		}
	}
}
