// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// pool has the texts, remedies, links, details, layouts and lists of differences of a page, each once.
type pool struct {
	out      data
	texts    map[string]text
	remedies map[remedy]int
	changes  map[drift]int
	keys     map[string]int // links, details and so on, by what they say
	bytes    int            // of the keys and of all texts
	written  int            // bytes of texts
}

func newPool(kindOf string) *pool {
	p := &pool{texts: map[string]text{}, remedies: map[remedy]int{}, changes: map[drift]int{}, keys: map[string]int{}}
	p.out = data{
		Kind: kindOf, Texts: []string{}, Remedies: []remedy{}, Links: []link{}, Details: []detail{}, Layouts: []layout{}, Kinds: []kind{},
		Changes: []drift{}, Drifts: []drifts{}, Causes: []cause{}, Groups: [][]int{}, Sorts: []sort{}, Rows: []row{}, Like: none, Gone: []text{},
	}
	for l := range chain.Links {
		p.out.Claims = append(p.out.Claims, claim{l.String(), l.Claim()})
	}
	return p
}

// leftOut stands for texts that the page has no room for.
const leftOut = "(left out: the page is full)"

// text is the place of a text. An empty one has none.
func (p *pool) text(s string) text {
	if _, ok := p.texts[clipped(s)]; !ok && p.written > maxTexts {
		s, p.out.Left.Details = leftOut, true
	}
	return p.keep(s)
}

// keep is text for a text that a page is never without.
func (p *pool) keep(s string) text {
	if s == "" {
		return none
	}
	s = clipped(s)
	if at, ok := p.texts[s]; ok {
		return at
	}
	s = strings.Clone(s) // the document that it is a part of can go
	at := text(len(p.out.Texts))
	p.out.Texts, p.texts[s] = append(p.out.Texts, s), at
	p.bytes += len(s)
	p.written += len(s)
	return at
}

// most is how long a list may be.
func (p *pool) most(n int) int {
	if p.full() {
		return min(n, maxFull)
	}
	return n
}

// clipped is a text of at most maxText bytes. Its bytes are UTF-8.
func clipped(s string) string {
	long := len(s) > maxText
	if long {
		at := maxText
		for at > maxText-utf8.UTFMax && !utf8.RuneStart(s[at]) {
			at--
		}
		s = s[:at]
	}
	s = strings.ToValidUTF8(s, "\ufffd")
	if long {
		s += "…"
	}
	return s
}

// list are the places of the first texts of a list.
func (p *pool) list(all []string, most int) []text {
	out := []text{}
	reasons := most == maxWhy
	most = p.most(most)
	for _, s := range all[:min(len(all), most)] {
		out = append(out, p.text(s))
	}
	if more := len(all) - most; more > 0 && reasons {
		out = append(out, p.text(fmt.Sprintf("and %d more", more)))
	}
	return out
}

func (p *pool) remedy(r *result.Remedy) int {
	if r == nil {
		return -1
	}
	x := remedy{p.text(r.Change), p.text(r.Command), p.text(render.PlaceOf(r.Change, r.Command)), p.text(r.Weakens), r.Direct}
	at, ok := p.remedies[x]
	if !ok {
		at = len(p.out.Remedies)
		p.out.Remedies, p.remedies[x] = append(p.out.Remedies, x), at
	}
	return at
}

func (p *pool) fix(r *result.Fix) int {
	if r == nil {
		return -1
	}
	return p.remedy(&result.Remedy{Change: r.Change, Command: r.Command, Weakens: r.Weakens})
}

// once is the place of a value in a list, which has equal values once. The value has no text in it but constants
// and places in Texts.
func once[T any](p *pool, list *[]T, v T) int {
	key, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of this package
	}
	whole := fmt.Sprintf("%T%s", v, key)
	at, ok := p.keys[whole]
	if !ok {
		at = len(*list)
		*list, p.keys[whole] = append(*list, v), at
		p.bytes += len(key)
	}
	return at
}

// full reports that the page has no room for more details.
func (p *pool) full() bool { return p.bytes > maxDetails }

func (p *pool) link(l result.Link) int {
	x := link{Link: p.text(l.Link), State: p.text(l.State), Why: p.list(l.Why, maxWhy), Evidence: [][2]text{}, Remedy: p.remedy(l.Remedy)}
	for _, e := range l.Evidence[:min(len(l.Evidence), maxEvidence)] {
		x.Evidence = append(x.Evidence, [2]text{p.text(e.File), p.text(e.Value)})
	}
	return once(p, &p.out.Links, x)
}

// detail is the place of what a pair says.
func (p *pool) detail(r result.Pair) int {
	d := detail{
		Outcome: r.Outcome, Head: none, Decides: none, Conclusion: none, Letters: none, Proof: none, Common: none, Remedy: -1,
		Slow: r.Slow(), Why: []text{}, Notes: []text{}, Links: []int{}, Redirects: []text{},
	}
	if l, err := chain.ParseLink(r.Decides); err == nil {
		d.Decides = p.text(l.String())
	}
	if p.full() {
		d.Cut, p.out.Left.Details = true, true
		return once(p, &p.out.Details, d)
	}
	d.Head, d.Conclusion, d.Letters = p.text(render.Headline(r)), p.text(render.Conclusion(r)), p.text(r.NCCL)
	d.Why, d.Notes, d.Remedy = p.list(r.Why, maxWhy), p.list(r.Notes, maxWhy), p.remedy(r.Remedy)
	for _, l := range r.Links {
		d.Links = append(d.Links, p.link(l))
	}
	if r.Proof != nil {
		d.Proof = p.text(r.Proof.String())
	}
	if r.Decision.Common != nil {
		d.Common = p.text(r.Decision.Common.String())
	}
	for _, port := range r.Decision.Redirects[:min(len(r.Decision.Redirects), maxNames)] {
		d.Redirects = append(d.Redirects, p.text(port.PCI.String()))
	}
	return once(p, &p.out.Details, d)
}

// kind is the place of the pairs that count, with the places of these pairs among all in the order of its cells.
func (p *pool) kind(r result.Run, most int) (at int, order []int) {
	k, l := kind{Cells: []int{}}, layout{GPUs: []device{}, NICs: []device{}, Groups: []group{}}
	if n := counting(r); n > most || n > maxPairs && p.full() {
		k.Cut, p.out.Left.Cells = true, true
		k.Layout = once(p, &p.out.Layouts, l)
		return once(p, &p.out.Kinds, k), nil
	}
	gpus, nics := map[string]int{}, map[string]int{}
	for i, q := range r.Pairs {
		if !q.Counts {
			continue
		}
		g, ok := gpus[q.GPU]
		if !ok {
			g = len(l.Groups)
			gpus[q.GPU] = g
			l.GPUs, l.Groups = append(l.GPUs, p.gpu(r, q.GPU)), append(l.Groups, group{GPU: g, NICs: []int{}})
		}
		n, ok := nics[q.NIC]
		if !ok {
			n = len(l.NICs)
			nics[q.NIC] = n
			l.NICs = append(l.NICs, p.nic(r, q.NIC))
		}
		l.Groups[g].NICs = append(l.Groups[g].NICs, n)
		order = append(order, i)
	}
	k.Layout = once(p, &p.out.Layouts, l)
	order = order[:0]
	inGroups := make([][]int, len(l.Groups))
	for i, q := range r.Pairs {
		if q.Counts {
			inGroups[gpus[q.GPU]] = append(inGroups[gpus[q.GPU]], i)
		}
	}
	for _, its := range inGroups {
		for _, i := range its {
			k.Cells, order = append(k.Cells, p.detail(r.Pairs[i])), append(order, i)
		}
	}
	return once(p, &p.out.Kinds, k), order
}

// counting returns how many pairs count. The summary in a run file can be wrong.
func counting(r result.Run) (n int) {
	for _, q := range r.Pairs {
		if q.Counts {
			n++
		}
	}
	return n
}

func (p *pool) gpu(r result.Run, name string) device {
	d := device{Name: p.text(name), PCI: none, Driver: none}
	for _, g := range r.GPUs {
		if g.Name == name {
			d.Driver = p.text(g.Driver)
			if g.PCI != nil {
				d.PCI = p.text(g.PCI.String())
			}
			break
		}
	}
	return d
}

func (p *pool) nic(r result.Run, name string) device {
	d := device{Name: p.text(name), PCI: none, Driver: none}
	for _, n := range r.NICs {
		if n.Name == name {
			d.Driver = p.text(n.Driver)
			if n.PCI != nil {
				d.PCI = p.text(n.PCI.String())
			}
			break
		}
	}
	return d
}

// drifts is the place of differences.
func (p *pool) drifts(all []result.Drift) int {
	most := p.most(maxDrift)
	x := drifts{Items: []int{}, More: max(0, len(all)-most)}
	for i, d := range all {
		change := d.Change
		switch {
		case d.Worse():
			change = "worse"
			x.Worse++
		case change == "unknown":
			x.Unknown++
		case change == "better":
			x.Better++
		default:
			change = "changed"
			x.Changed++
		}
		if i < most {
			x.Items = append(x.Items, p.change(drift{p.text(d.What), p.text(d.Name), p.text(d.Before), p.text(d.After), change, d.AsksMore}))
		}
	}
	return once(p, &p.out.Drifts, x)
}

func (p *pool) change(d drift) int {
	at, ok := p.changes[d]
	if !ok {
		at = len(p.out.Changes)
		p.out.Changes, p.changes[d] = append(p.out.Changes, d), at
		p.bytes += changeBytes
	}
	return at
}

// causes writes the causes of a report, and the groups that one change mends.
func (p *pool) causes(all []cause, groups [][]int) {
	most := min(len(all), maxCauses)
	p.out.Causes, p.out.Left.Causes = all[:most], len(all)-most
	for _, g := range groups {
		var its []int
		for _, i := range g {
			if i < most {
				its = append(its, i)
			}
		}
		if len(its) > 0 {
			p.out.Groups = append(p.out.Groups, its)
		}
	}
}
