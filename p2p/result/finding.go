// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
)

// Fix is the remedy of a finding: a change in words, a command or parameter, and the protection
// that the change gives up.
type Fix struct {
	Change  string `json:"change"`            // what to change, in words
	Command string `json:"command,omitempty"` // a command, or a parameter of the kernel
	Weakens string `json:"weakens,omitempty"` // the protection that the change gives up
}

// Finding is what one check found.
type Finding struct {
	ID     string `json:"id"`     // the ID of the check: "KRN-NUMA-BAL"
	Result string `json:"result"` // the result of the check
	Title  string `json:"title"`  // what holds if the check passes
	// Scope has the devices, ports or pairs ("GPU -> NIC") that it is about; none: the machine.
	Scope    []string `json:"scope"`
	Read     string   `json:"read"`     // the value that was read, in words
	Where    []string `json:"where"`    // the files in which it was read, by their names on that machine
	Expected string   `json:"expected"` // the value or state that lets the check pass
	// Decides says that the check can fail, so that an unknown finding may hide a failure. It is false
	// of what only CUDA or NVML can tell (NV-DMABUF-ATTR, NV-CC, PCIE-BAR-SIZE) where there is no such
	// library to ask, as in a copy or a build without cgo, and of a BAR of the largest size beside
	// memory of which no driver tells.
	Decides bool `json:"decides"`
	// Links are the links of pairs that the check answers; none if it bears on no pair's verdict.
	Links  []string `json:"links"`
	Remedy *Fix     `json:"remedy"` // what to change; null without a remedy
	Ref    string   `json:"ref"`    // where the rule comes from
}

// Ranks are the results of checks, the worst first.
var Ranks = []string{"fail", "unknown", "warn", "pass", "skip"}

func findingsOf(all []check.Finding) []Finding {
	out := []Finding{}
	for _, f := range all {
		g := Finding{
			ID: f.Check.ID, Result: f.Result.String(), Title: f.Check.Title, Scope: List(f.Scope), Read: f.Read,
			Where: List(f.Where), Expected: f.Expect, Decides: f.Decides(), Links: LinksOf(f.Check), Ref: f.Check.Ref,
		}
		if r := f.Remedy; r != nil {
			g.Remedy = &Fix{r.Change, r.Command, r.Weakens}
		}
		out = append(out, g)
	}
	return out
}

// LinksOf returns the names of the links that a check answers.
func LinksOf(c *check.Check) []string {
	out := []string{}
	for _, l := range c.Links {
		out = append(out, l.String())
	}
	return out
}

// Worst returns the worst result of each check, by its ID. A warning is worse than an
// unknown finding that can only hide a warning.
func Worst(all []Finding) map[string]string {
	worst := map[string]Finding{}
	for _, f := range all {
		if was, ok := worst[f.ID]; !ok || f.rank() < was.rank() {
			worst[f.ID] = f
		}
	}
	out := map[string]string{}
	for id, f := range worst {
		out[id] = f.Result
	}
	return out
}

// rank orders findings, the worst first.
func (f Finding) rank() int {
	if f.Result == "unknown" && !f.Decides {
		return 2*slices.Index(Ranks, "warn") + 1
	}
	return 2 * slices.Index(Ranks, f.Result)
}

// IDs returns the IDs of the checks that have findings, each once.
func IDs(all []Finding) (ids []string) {
	seen := map[string]bool{}
	for _, f := range all {
		if !seen[f.ID] {
			ids = append(ids, f.ID)
		}
		seen[f.ID] = true
	}
	return ids
}

// Like reports whether g is of the same check, and has the same result and the same remedy.
func (f Finding) Like(g Finding) bool {
	return f.ID == g.ID && f.Result == g.Result && f.Expected == g.Expected && f.Remedy.like(g.Remedy)
}

// like reports the same remedy. A command of p2pcheck that names a GPU or a pair is the same
// for others.
func (x *Fix) like(y *Fix) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := *x, *y
	a.Command, b.Command = OfAnyDevice(a.Command), OfAnyDevice(b.Command)
	return a == b
}

// OfAnyDevice returns a command of p2pcheck without --gpu and --nic, and what follows them.
func OfAnyDevice(command string) string {
	command, _, _ = strings.Cut(command, " --gpu ")
	command, _, _ = strings.Cut(command, " --nic ")
	return command
}
