// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// pool numbers texts. Runs that say the same have the same numbers, and the text once.
type pool struct {
	ids   map[string]id
	texts []string
}

type id uint32

func (p *pool) id(text string) id {
	if n, ok := p.ids[text]; ok {
		return n
	}
	if p.ids == nil {
		p.ids = map[string]id{}
	}
	text = strings.Clone(text) // the document that it is a part of can go
	n := id(len(p.texts))
	p.ids[text], p.texts = n, append(p.texts, text)
	return n
}

// key is what a fact is about.
type key struct {
	what kind
	name id
}

// kind is an index in facing.
type kind uint8

// facing is the order of differences of a kind: causes come before their consequences.
var facing = []string{"machine", "gpu", "nic", "pair", "proof", "check"}

const (
	ofMachine kind = iota
	ofGPU
	ofNIC
	ofPair
	ofProof
	ofCheck
)

// fact is one value of a run, and how good the value is: higher is better, 0 is unknown, and negative
// values are neither good nor bad.
type fact struct {
	text id
	good int8
}

// neither marks facts that are neither good nor bad; uncounted marks facts about devices that do not
// count, as a server's display: a difference in one is a change, never better or worse.
const (
	neither   = -1
	uncounted = -2
	best      = 3
)

// goodness of outcomes of pairs, and of results of checks. All but direct are
// equally bad: no NIC reaches the GPU.
var goodness = map[string]int8{
	"refused": 1, "staged": 1, "lost": 1, "broken": 1, "direct": best,
	"fail": 1, "warn": 2, "pass": best,
}

// named is a fact with what it is about.
type named struct {
	key
	fact
}

// linked is what a pair that counts says about its links.
type linked struct {
	outcome, link id     // as predicted, and the link that decides
	why           id     // the last reason of that link
	known         uint16 // a bit for each link that could be read
}

// facts are the values of a run in order, those of its proofs last.
type facts struct {
	all    []named // see list
	base   []named // of another run about the same things; nil if all has the values
	other  []value // those that differ from base's
	proofs int     // of all, how many are of proofs
	pairs  map[id]linked
	live   bool // pairs were proven
	older  bool // the run is of the first schema
}

// value is a fact in the place of another one.
type value struct {
	at int32
	fact
}

// list is all values.
func (f *facts) list() []named {
	if f.base == nil {
		return f.all
	}
	out := slices.Clone(f.base)
	for _, v := range f.other {
		out[v.at].fact = v.fact
	}
	return out
}

// above keeps the values that differ from those of a run about the same things, if they are few.
func (f *facts) above(base []named) {
	var other []value
	for i, n := range f.all {
		if n.fact != base[i].fact {
			other = append(other, value{int32(i), n.fact})
		}
	}
	if len(other) <= len(base)/4 {
		f.all, f.base, f.other = nil, base, slices.Clone(other)
	}
}

// gathering makes the facts of one run.
type gathering struct {
	*pool
	facts
	at map[key]int
}

func (p *pool) factsOf(r result.Run) *facts {
	g := &gathering{pool: p, facts: facts{pairs: map[id]linked{}, live: r.Live != nil, older: r.Older()}, at: map[key]int{}}
	g.add(ofMachine, "kernel", r.Machine.Kernel, neither)
	g.add(ofMachine, "CONFIG_PCI_P2PDMA", r.Machine.P2PDMA.String(), neither)
	g.add(ofMachine, "processor", r.Machine.CPU, neither)
	for _, x := range r.GPUs {
		good := int8(neither)
		if !x.Counts {
			good = uncounted
		}
		g.add(ofGPU, x.Name, fmt.Sprintf("%s (%s)", driverOf(x.Driver), x.Exporter), good)
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
		g.add(ofNIC, n.Name, fmt.Sprintf("%s at %s (%s)", driver, at, n.Importer), neither)
	}
	for _, p := range r.Pairs {
		name := p.GPU + " -> " + p.NIC
		if !p.Counts {
			g.add(ofPair, name, render.Outside, uncounted)
			continue
		}
		g.pair(name, p)
	}
	for _, c := range r.Checks {
		if !check.OfProof(c.ID) { // those depend on which pairs were proven
			g.check(c)
		}
	}
	plain := len(g.all)
	for _, p := range r.Pairs {
		if p.Proof != nil {
			g.add(ofProof, p.GPU+" -> "+p.NIC, p.Proof.Outcome, goodness[p.Proof.Outcome])
		}
	}
	for _, c := range r.Checks {
		if check.OfProof(c.ID) {
			g.check(c)
		}
	}
	g.proofs = len(g.all) - plain
	f := g.facts // without the map of places
	f.all = slices.Clone(f.all)
	return &f
}

func (g *gathering) add(what kind, name, value string, good int8) {
	k := key{what, g.id(name)}
	f := fact{g.id(value), good}
	if i, ok := g.at[k]; ok {
		g.all[i].fact = f
		return
	}
	g.at[k] = len(g.all)
	g.all = append(g.all, named{k, f})
}

// pair adds the prediction for a pair. The proof is a fact of its own.
func (g *gathering) pair(name string, p result.Pair) {
	outcome, link := p.Untried()
	value := outcome
	if e := p.UntriedErrno(); e != nil && outcome == chain.Refused.String() {
		value += " with " + e.Name
	}
	kernel := p.Decision.Type
	if kernel == p2pdma.MapUnknown.String() {
		kernel = "decision unknown"
	}
	g.add(ofPair, name, strings.TrimSpace(value+", "+kernel+" "+p.NCCL), goodness[outcome])
	of := linked{outcome: g.id(outcome), link: g.id(link), why: g.id(whyOf(p, link))}
	for l := range chain.Links {
		if its, ok := p.Of(l); ok && (its.State == chain.Holds.String() || its.State == chain.Costs.String()) {
			of.known |= 1 << l
		}
	}
	g.pairs[g.id(name)] = of
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

// driverOf is a driver in a sentence.
func driverOf(name string) string { return cmp.Or(strings.Trim(render.NoDriver(name), "()"), name) }

// check adds a finding, unless it is skipped.
func (g *gathering) check(c result.Finding) {
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
		if i, ok := g.at[key{ofCheck, g.id(name)}]; ok && slices.Index(result.Ranks, g.texts[g.all[i].text]) < slices.Index(result.Ranks, c.Result) {
			continue
		}
		g.add(ofCheck, name, c.Result, goodness[c.Result])
	}
}

// things is the sum of what the facts are about.
func (f *facts) things() sum {
	data := make([]byte, 0, 5*len(f.all))
	for _, x := range f.all {
		data = append(data, byte(x.what))
		data = binary.LittleEndian.AppendUint32(data, uint32(x.name))
	}
	return sha256.Sum256(data)
}

// links is the sum of what the pairs say of their links.
func (f *facts) links() sum {
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(f.pairs)) {
		l := f.pairs[name]
		for _, n := range []id{name, l.outcome, l.link, l.why, id(l.known)} {
			data = binary.LittleEndian.AppendUint32(data, uint32(n))
		}
	}
	return sha256.Sum256(data)
}

// sum is the same for runs with the same facts.
type sum [sha256.Size]byte

// kindSum is the sum of the facts that make a kind of node: proofs do not.
func (f *facts) kindSum() sum { return sumOf(f.all[:len(f.all)-f.proofs]) }

// sum is that of all facts: of two runs with the same one, a third differs in the same.
func (f *facts) sum() sum {
	values, links := sumOf(f.all), f.links()
	return sha256.Sum256(fmt.Append(nil, values, links, f.proofs, f.live, f.older))
}

func sumOf(all []named) sum {
	data := make([]byte, 0, 9*len(all))
	for _, x := range all {
		data = append(data, byte(x.what))
		data = binary.LittleEndian.AppendUint32(data, uint32(x.name))
		data = binary.LittleEndian.AppendUint32(data, uint32(x.text))
	}
	return sha256.Sum256(data)
}
