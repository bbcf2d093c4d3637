// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// mutation changes one fact of a machine whose pair is direct.
type mutation struct {
	name string
	on   func(*subject) bool // the subjects that have the fact; nil is all
	edit func(*bed)
	want effect
	why  string // where it is from: a source file, a document, an issue
}

// effect is what a mutation does to the pair.
type effect struct {
	kind    effectKind
	links   []chain.Link  // that may decide, where the pair is direct no more
	outcome chain.Outcome // the outcome afterwards; OutcomeUnknown where kind alone is compared
}

type effectKind int

const (
	same    effectKind = iota // nothing at all changes in the verdict
	stays                     // the pair is direct still, perhaps for other reasons
	costly                    // the pair is direct, at a cost that it did not have
	gone                      // the pair is direct no more
	doubted                   // whether the pair is direct is not known any more
	broken                    // the pair is known not to be direct
)

// goes is a mutation after which the pair is not direct, and one of these links says so.
func goes(links ...chain.Link) effect { return effect{kind: gone, links: links} }

// unsure is a mutation of what is then unread: it takes the answer away, and gives no other.
func unsure(links ...chain.Link) effect { return effect{kind: doubted, links: links} }

// breaks is one after which the pair is known not to be direct.
func breaks(o chain.Outcome, links ...chain.Link) effect {
	return effect{kind: broken, links: links, outcome: o}
}

var (
	changesNothing = effect{kind: same}
	staysDirect    = effect{kind: stays}
	costs          = effect{kind: costly}
)

// mutations are all, by the link whose evidence they change.
func mutations() []mutation {
	return slices.Concat(libraryMutations(), routeMutations(), kernelMutations(), attachMutations(), addressMutations(), fabricMutations(), rootMutations(), logMutations(), cutMutations(), cutLogMutations(), harmlessMutations())
}

// applies reports a mutation of a fact that the subject has.
func (x mutation) applies(s *subject) bool { return x.on == nil || x.on(s) }

// judged is what a machine makes of its pair.
type judged struct {
	pair   p2p.Pair
	listed bool
}

func (j judged) outcome() chain.Outcome { return j.pair.Verdict.Outcome() }

// text is all that a verdict says.
func (j judged) text() string {
	v := j.pair.Verdict
	link, by := v.Decides()
	return fmt.Sprintf("%v\ncosts %q\ndecided by %v %v\nremedy %v", v, v.Costs(), link, by, j.pair.Remedy)
}

func (b *bed) judged() judged {
	p, ok := b.judge()
	return judged{p, ok}
}

// check says what is wrong with a verdict after a mutation; "" if nothing is.
func (e effect) check(before, after judged) string {
	v := after.pair.Verdict
	links := e.links
	if before.pair.GPU.Exporter.Driver == "amdgpu" && before.pair.Prediction.ByPeerMem {
		links = append(slices.Clip(links), chain.Attach) // the rules of ROCm's amdgpu for dma-bufs are not known
	}
	direct := after.listed && after.outcome() == chain.Direct
	link, decided := v.Decides()
	switch e.kind {
	case same:
		if d := cmp.Diff(before.text(), after.text()); d != "" || !after.listed {
			return "is harmless, and changes the verdict:\n" + d
		}
	case stays:
		if !direct {
			return fmt.Sprintf("leaves the pair direct, and it is %v", v)
		}
	case costly:
		if !direct || len(v.Costs()) == 0 {
			return fmt.Sprintf("costs speed, and the pair is %v, costs %q", v, v.Costs())
		}
	case gone, doubted, broken:
		switch {
		case direct:
			return fmt.Sprintf("leaves direct standing: %v, costs %q", v, v.Costs())
		case !after.listed:
			return "takes the device away; a row of that kind has no link"
		case !decided || !slices.Contains(links, link):
			return fmt.Sprintf("is decided by %v, want %v: %v", link, links, v)
		case e.kind == doubted && after.outcome() != chain.OutcomeUnknown:
			return fmt.Sprintf("leaves the pair unknown, and it is %v", v)
		case e.kind == broken && after.outcome() != e.outcome:
			return fmt.Sprintf("makes it %v, want %v: %v", after.outcome(), e.outcome, v)
		}
	}
	return ""
}

// leastMutations and leastMachines are what the project asks for.
const (
	leastMutations = 150
	leastMachines  = 10
)

// Each fact that a link of a direct pair rests on is changed, one at a time: none leaves the pair
// direct where the fact decides, and none changes anything where it does not.
func TestMutations(t *testing.T) {
	testenv.Exhaustive(t)
	var lock sync.Mutex
	times := map[string]int{}
	machines := map[string]bool{}
	harmful, harmless := 0, 0
	t.Run("machines", func(t *testing.T) {
		for _, s := range subjects {
			t.Run(s.title(), func(t *testing.T) {
				t.Parallel()
				b := newBed(t, s)
				before := b.judged()
				if before.outcome() != chain.Direct {
					t.Fatalf("not direct to begin with: %v", before.pair.Verdict)
				}
				if before.pair.Prediction.ByPeerMem == s.dmabuf {
					t.Errorf("by peer memory: %v", before.pair.Prediction.ByPeerMem)
				}
				for _, x := range mutations() {
					if !x.applies(s) {
						continue
					}
					x.edit(b)
					after := b.judged()
					b.undo()
					if problem := x.want.check(before, after); problem != "" {
						t.Errorf("%s %s\n(%s)", x.name, problem, x.why)
					}
					lock.Lock()
					times[x.name]++
					machines[s.name] = true
					if x.want.kind >= gone {
						harmful++
					} else {
						harmless++
					}
					lock.Unlock()
				}
				if d := cmp.Diff(before.text(), b.judged().text()); d != "" {
					t.Errorf("the machine was not put back:\n%s", d)
				}
			})
		}
	})
	if os.Getenv("GPURDMA_CORPUS") != "" {
		t.Logf("%d mutations that decide and %d that do not, over %d machines", harmful, harmless, len(machines))
	}
	for _, x := range mutations() {
		if times[x.name] == 0 {
			t.Errorf("%s: no machine has the fact", x.name)
		}
		if x.why == "" {
			t.Errorf("%s: no source", x.name)
		}
	}
	if harmful < leastMutations || len(machines) < leastMachines {
		t.Errorf("%d mutations that decide over %d machines, want at least %d over %d", harmful, len(machines), leastMutations, leastMachines)
	}
}
