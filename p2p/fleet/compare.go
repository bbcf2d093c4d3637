// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Compare returns the differences of two runs, the worst first. uncompared is the number of checks that
// only one of the runs has: Compare leaves them out.
func Compare(before, after result.Run) (out []result.Drift, uncompared int) {
	p := &pool{}
	was := p.index(p.factsOf(before))
	return p.compare(was, p.factsOf(after))
}

// indexed are facts that others are compared with.
type indexed struct {
	*facts
	at map[key]fact
}

func (p *pool) index(f *facts) indexed {
	x := indexed{f, map[key]fact{}}
	for _, n := range f.list() {
		x.at[n.key] = n.fact
	}
	return x
}

func (p *pool) compare(was indexed, is *facts) (out []result.Drift, uncompared int) {
	out = []result.Drift{}
	all, proofs := is.list(), was.live && is.live
	if !proofs {
		all = all[:len(all)-is.proofs]
	}
	there := make(map[key]bool, len(all))
	alone := map[string]bool{} // IDs of checks
	for _, n := range all {
		there[n.key] = true
		b, ok := was.at[n.key]
		if ok && b.text == n.text {
			continue
		}
		if d, differs := p.difference(was.facts, is, n.key, b, n.fact, ok, true, alone); differs {
			out = append(out, d)
		}
	}
	before := was.list()
	if !proofs {
		before = before[:len(before)-was.proofs]
	}
	for _, n := range before {
		if !there[n.key] {
			if d, differs := p.difference(was.facts, is, n.key, n.fact, fact{}, true, false, alone); differs {
				out = append(out, d)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y result.Drift) int {
		return cmp.Or(cmp.Compare(slices.Index(result.Changes, x.Change), slices.Index(result.Changes, y.Change)), cmp.Compare(mild(x), mild(y)), cmp.Compare(slices.Index(facing, x.What), slices.Index(facing, y.What)))
	})
	return out, len(alone)
}

// difference describes what became of one thing: b before, if it was there, and a after, if it is there.
func (p *pool) difference(was, is *facts, k key, b, a fact, before, after bool, alone map[string]bool) (result.Drift, bool) {
	switch {
	case k.what == ofCheck && before != after:
		check, _, _ := strings.Cut(p.texts[k.name], " ")
		alone[check] = true
		return result.Drift{}, false
	case k.what == ofPair && (!before && a.good == uncounted || !after && b.good == uncounted):
		return result.Drift{}, false // it came or went with its device, which is listed
	case before && after && a.text == b.text:
		return result.Drift{}, false
	}
	d := result.Drift{What: facing[k.what], Name: p.texts[k.name], Change: changeOf(b, a, before, after)}
	if before {
		d.Before = p.texts[b.text]
	}
	if after {
		d.After = p.texts[a.text]
	}
	if d.Before == d.After {
		return result.Drift{}, false
	}
	if before && after && b.good >= 0 && a.good >= 0 {
		v := versions{was.older, is.older}
		switch k.what {
		case ofPair:
			d = v.pair(p, d, was.pairs[k.name], is.pairs[k.name])
		case ofCheck:
			d = v.check(d)
		}
	}
	return d, true
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
func (v versions) pair(p *pool, d result.Drift, before, after linked) result.Drift {
	const direct, unknown = "direct", "unknown"
	was, is, link := p.texts[before.outcome], p.texts[after.outcome], p.texts[after.link]
	d.AsksMore = v.differ() && (was == unknown || is == unknown)
	switch {
	case was == direct && is == unknown:
		d.After = "not known to be direct any more"
		if why := p.texts[after.why]; why != "" {
			d.After += ": " + link + ": " + why
		}
		if v.before && !v.after {
			d.After += fmt.Sprintf(" (this version asks more than %s did)", result.SchemaV1)
		} else if l, err := chain.ParseLink(link); err == nil && before.known&(1<<l) != 0 {
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
