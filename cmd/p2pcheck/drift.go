// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// fact is one value of a run, and how good the value is: higher is better, 0 is unknown, and negative
// values are neither good nor bad.
type fact struct {
	text string
	good int
}

// neither marks facts that are neither good nor bad; uncounted marks facts about devices that do not
// count, as a server's display: a difference in one is a change, never better or worse.
const (
	neither   = -1
	uncounted = -2
)

// goodness of outcomes of pairs, and of results of checks. All but direct are
// equally bad: no NIC reaches the GPU.
var goodness = map[string]int{
	"refused": 1, "staged": 1, "lost": 1, "broken": 1, "direct": best,
	"fail": 1, "warn": 2, "pass": best,
}

const best = 3

// facts are the values of a run, each under a name, in order.
type facts struct {
	names  []result.Drift // of what, and its name
	values map[result.Drift]fact
	pairs  map[string]result.Pair // those that count
}

func (f *facts) add(what, name, value string, good int) {
	key := result.Drift{What: what, Name: name}
	if _, ok := f.values[key]; !ok {
		f.names = append(f.names, key)
	}
	f.values[key] = fact{value, good}
}

func factsOf(r result.Run) *facts {
	f := &facts{values: map[result.Drift]fact{}, pairs: map[string]result.Pair{}}
	f.add("machine", "kernel", r.Machine.Kernel, neither)
	f.add("machine", "CONFIG_PCI_P2PDMA", r.Machine.P2PDMA.String(), neither)
	f.add("machine", "processor", r.Machine.CPU, neither)
	for _, g := range r.GPUs {
		good := neither
		if !g.Counts {
			good = uncounted
		}
		f.add("gpu", g.Name, fmt.Sprintf("%s (%s)", driverOf(g.Driver), g.Exporter), good)
	}
	for _, n := range r.NICs {
		at := "no PCI function"
		if n.PCI != nil {
			at = n.PCI.String()
		}
		driver := driverOf(n.Driver)
		if n.Driver == "" && n.Software {
			driver = "software"
		}
		f.add("nic", n.Name, fmt.Sprintf("%s at %s (%s)", driver, at, n.Importer), neither)
	}
	for _, p := range r.Pairs {
		name := p.GPU + " -> " + p.NIC
		if !p.Counts {
			f.add("pair", name, render.Outside, uncounted)
			continue
		}
		f.pair(name, p)
	}
	for _, c := range r.Checks {
		if check.OfProof(c.ID) {
			continue // it depends on which pairs were proven
		}
		f.check(c)
	}
	return f
}

// pair adds the prediction for a pair. The proof is a fact of its own.
func (f *facts) pair(name string, p result.Pair) {
	outcome, _ := p.Untried()
	value := outcome
	if e := p.UntriedErrno(); e != nil && outcome == chain.Refused.String() {
		value += " with " + e.Name
	}
	kernel := p.Decision.Type
	if kernel == p2pdma.MapUnknown.String() {
		kernel = "decision unknown"
	}
	f.add("pair", name, strings.TrimSpace(value+", "+kernel+" "+p.NCCL), goodness[outcome])
	f.pairs[name] = p
}

// driverOf is a driver in a sentence.
func driverOf(name string) string { return cmp.Or(strings.Trim(render.NoDriver(name), "()"), name) }

// prove adds the proof of a pair.
func (f *facts) prove(r result.Run) {
	for _, p := range r.Pairs {
		if p.Proof != nil {
			f.add("proof", p.GPU+" -> "+p.NIC, p.Proof.Outcome, goodness[p.Proof.Outcome])
		}
	}
	for _, c := range r.Checks {
		if check.OfProof(c.ID) {
			f.check(c)
		}
	}
}

// check adds a finding, unless it is skipped.
func (f *facts) check(c result.Finding) {
	if c.Result == "skip" {
		return
	}
	scope := c.Scope
	if len(scope) == 0 {
		scope = []string{""}
	}
	for _, s := range scope {
		name := strings.TrimSpace(c.ID + " " + s)
		// Of several findings on one thing the worst counts.
		if was, ok := f.values[result.Drift{What: "check", Name: name}]; ok && slices.Index(result.Ranks, was.text) < slices.Index(result.Ranks, c.Result) {
			continue
		}
		f.add("check", name, c.Result, goodness[c.Result])
	}
}

// facing is the order of differences of a kind: causes come before their consequences.
var facing = []string{"machine", "gpu", "nic", "pair", "proof", "check"}

// drifted lists the differences, the worst first. It counts the checks that only one of the runs has, which
// it does not compare.
func drifted(before, after result.Run) (out []result.Drift, uncompared int) {
	out = []result.Drift{}
	was, is := factsOf(before), factsOf(after)
	if before.Live != nil && after.Live != nil {
		was.prove(before)
		is.prove(after)
	}
	alone := map[string]bool{} // IDs of checks
	compare := func(key result.Drift) {
		b, there1 := was.values[key]
		a, there2 := is.values[key]
		switch {
		case key.What == "check" && there1 != there2:
			id, _, _ := strings.Cut(key.Name, " ")
			alone[id] = true
		case key.What == "pair" && (!there1 && a.good == uncounted || !there2 && b.good == uncounted):
			// It came or went with its device, which is listed.
		case a.text != b.text:
			d := result.Drift{What: key.What, Name: key.Name, Before: b.text, After: a.text, Change: changeOf(b, a, there1, there2)}
			if there1 && there2 && b.good >= 0 && a.good >= 0 {
				v := versions{before.Older(), after.Older()}
				switch key.What {
				case "pair":
					d = v.pair(d, was.pairs[key.Name], is.pairs[key.Name])
				case "check":
					d = v.check(d)
				}
			}
			out = append(out, d)
		}
	}
	for _, key := range is.names {
		compare(key)
	}
	for _, key := range was.names {
		if _, ok := is.values[key]; !ok {
			compare(key)
		}
	}
	slices.SortStableFunc(out, func(x, y result.Drift) int {
		return cmp.Or(cmp.Compare(slices.Index(result.Changes, x.Change), slices.Index(result.Changes, y.Change)), cmp.Compare(mild(x), mild(y)), cmp.Compare(slices.Index(facing, x.What), slices.Index(facing, y.What)))
	})
	return out, len(alone)
}

// mild is 1 for a difference that only warns now: it comes behind failures.
func mild(d result.Drift) int {
	if d.After == "warn" {
		return 1
	}
	return 0
}

// changeOf says whether a difference is better, worse or neither.
func changeOf(before, after fact, was, is bool) string {
	switch {
	case before.good == uncounted || after.good == uncounted:
		return "changed"
	case !is:
		return "worse" // a device that is gone
	case !was && (after.good == neither || after.good == best):
		return "better"
	case !was, after.good == neither, before.good == neither, after.good == before.good:
		return "changed"
	case after.good == 0:
		return "unknown"
	case before.good == 0 && after.good == goodness["warn"]:
		return "changed"
	case after.good == best, after.good > before.good && before.good > 0:
		return "better"
	}
	return "worse"
}

// versions says which of two runs are of the first version of the schema, which asked for less
// before it said that a pair is direct. What one of two versions does not know is no difference
// of the machines.
type versions struct{ before, after bool }

// differ reports runs that do not ask for the same.
func (v versions) differ() bool { return v.before != v.after }

// pair corrects the difference of a pair that one of the runs does not know. Where both ask for
// the same, a pair that is not known to be direct any more is worse if the link that decides could
// be read before.
func (v versions) pair(d result.Drift, before, after result.Pair) result.Drift {
	const direct, unknown = "direct", "unknown"
	was, _ := before.Untried()
	is, link := after.Untried()
	d.AsksMore = v.differ() && (was == unknown || is == unknown)
	switch {
	case was == direct && is == unknown:
		d.After = "not known to be direct any more"
		if why := whyOf(after, link); why != "" {
			d.After += ": " + link + ": " + why
		}
		if v.before && !v.after {
			d.After += fmt.Sprintf(" (this version asks more than %s did)", result.SchemaV1)
		} else if known(before, link) {
			d.Change = "worse"
		}
	case d.AsksMore && v.before && d.Change == "worse":
		d.Change = "changed"
		d.After += fmt.Sprintf(" (%s did not know it)", result.SchemaV1)
	case d.AsksMore && v.after && d.Change != "unknown":
		d.Change = "changed"
		d.After += fmt.Sprintf(" (%s asks less)", result.SchemaV1)
	}
	return d
}

// check corrects the difference of a check that one of the runs does not know.
func (v versions) check(d result.Drift) result.Drift {
	d.AsksMore = v.differ() && (d.Before == "unknown" || d.After == "unknown")
	if d.AsksMore && d.Before == "unknown" && (v.after || d.Change == "worse") {
		d.Change = "changed"
	}
	return d
}

// whyOf is the last reason of a link.
func whyOf(p result.Pair, link string) string {
	l, err := chain.ParseLink(link)
	if err != nil {
		return ""
	}
	its, _ := p.Of(l)
	if len(its.Why) == 0 {
		return ""
	}
	return its.Why[len(its.Why)-1]
}

// known reports that a run could read what answers a link. A link that was not asked was not read.
func known(p result.Pair, link string) bool {
	l, err := chain.ParseLink(link)
	if err != nil {
		return false
	}
	its, _ := p.Of(l)
	return its.State == chain.Holds.String() || its.State == chain.Costs.String()
}
