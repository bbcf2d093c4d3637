// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

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
