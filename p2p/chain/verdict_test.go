// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var states = []State{Unknown, Holds, Costs, NotAsked, Breaks}

// ofStates is a chain with these states. outcome gives the outcome of each link that breaks.
func ofStates(s [Links]State, outcome func(Link) Outcome) (c Chain) {
	for l := range Links {
		c[l] = Answer{State: s[l], Why: []string{l.String()}}
		if s[l] == Breaks {
			c[l].Outcome = outcome(l)
		}
	}
	return c
}

// Every combination of states: a pair is direct if and only if all links to Fabric are good and the
// log does not contradict, or if a proof holds and the log does not contradict it.
func TestDirectOnlyIfAllHold(t *testing.T) {
	var s [Links]State
	tried := 0
	var try func(Link)
	try = func(l Link) {
		if l < Links {
			for _, state := range states {
				s[l] = state
				try(l + 1)
			}
			return
		}
		tried++
		outcomes := []Outcome{OutcomeUnknown, Direct, Staged, Refused, Lost, Broken} // a link that breaks may have any outcome
		v := ofStates(s, func(Link) Outcome { return outcomes[rand.IntN(len(outcomes))] }).Conclude()
		good := true
		for l := Library; l <= Fabric; l++ {
			good = good && s[l].Good()
		}
		if (v.Predicted() == Direct) != good {
			t.Fatalf("%v: predicted %v", s, v.Predicted())
		}
		proven := s[Proof] == Holds || s[Proof] == Costs
		want := (good && s[Proof] != Breaks || proven) && s[Log] != Breaks
		if (v.Outcome() == Direct) != want {
			t.Fatalf("%v: %v, want direct: %v", s, v.Outcome(), want)
		}
		if p := ofStates(s, func(Link) Outcome { return Lost }).ConcludeProven(); p.Outcome() == Direct && !proven {
			t.Fatalf("%v: direct, and it was to be proven", s)
		}
		if _, by := v.Decides(); !by && v.Outcome() != Direct {
			t.Fatalf("%v: %v, and no link decides", s, v.Outcome())
		}
	}
	try(Library)
	if tried != 390625 {
		t.Errorf("%d combinations", tried)
	}
}

func TestZeroIsUnknown(t *testing.T) {
	if o := (Verdict{}).Outcome(); o != OutcomeUnknown {
		t.Error(o)
	}
	if o := (Chain{}).Conclude().Outcome(); o != OutcomeUnknown {
		t.Error(o)
	}
}

func TestConclude(t *testing.T) {
	direct := func(change func(*Chain)) Chain {
		var c Chain
		for l := Library; l <= Fabric; l++ {
			c[l] = Hold("%v holds", l)
		}
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		change  func(*Chain)
		want    string // as Short says it
		decides string
		why     string
	}{
		"all hold":          {func(*Chain) {}, "direct", "", "fabric holds"},
		"one costs":         {func(c *Chain) { c[Fabric] = Cost("over the root") }, "direct", "", "over the root"},
		"one is unread":     {func(c *Chain) { c[Addresses] = Open("not read") }, "unknown", "addresses", "not read"},
		"one breaks":        {func(c *Chain) { c[Attach] = Refuse(unix.EINVAL, StageMap, "no") }, "refused with EINVAL", "attach", "no"},
		"the first decides": {func(c *Chain) { c[Decision], c[Fabric] = Break(Staged, "moved"), Break(Lost, "lost") }, "staged", "decision", "moved"},
		"an open one first": {func(c *Chain) { c[Library], c[Attach] = Open("?"), Break(Staged, "moved") }, "broken", "attach", "moved"},
		"an open one later": {func(c *Chain) { c[Attach], c[Fabric] = Break(Staged, "moved"), Open("?") }, "staged", "attach", "moved"},
		"nothing is said":   {func(c *Chain) { c[Fabric] = Answer{State: Breaks} }, "broken", "fabric", ""},
		"the log":           {func(c *Chain) { c[Log] = Break(Lost, "blocked") }, "lost", "log", "blocked"},
		"the log, vaguely":  {func(c *Chain) { c[Log] = Break(OutcomeUnknown, "a fault") }, "unknown", "log", "a fault"},
		"an unread log":     {func(c *Chain) { c[Log] = Open("no root") }, "direct", "", "fabric holds"},
		"the log and staged": {func(c *Chain) {
			c[Attach], c[Log] = Break(Staged, "moved"), Break(Lost, "blocked")
		}, "staged", "attach", "moved"},
		"a proof":            {func(c *Chain) { c[Library], c[Proof] = Open("?"), Hold("seen") }, "direct", "proof", "seen"},
		"a proof against it": {func(c *Chain) { c[Proof] = Break(Staged, "seen elsewhere") }, "staged", "proof", "seen elsewhere"},
		"a proof of nothing": {func(c *Chain) { c[Proof] = Answer{State: Breaks, Outcome: Direct} }, "broken", "proof", ""},
		"a log after a proof": {func(c *Chain) {
			c[Proof], c[Log] = Hold("seen"), Break(Lost, "blocked")
		}, "lost", "log", "blocked"},
	} {
		v := direct(c.change).Conclude()
		decides := ""
		if l, ok := v.Decides(); ok {
			decides = l.String()
		}
		if v.Short() != c.want || decides != c.decides || !strings.Contains(v.String(), c.why) {
			t.Errorf("%s: %v by %q, want %s by %q because %q", name, v, decides, c.want, c.decides, c.why)
		}
		if (len(v.Costs()) > 0) != (name == "one costs") {
			t.Errorf("%s: costs %q", name, v.Costs())
		}
	}
}

func TestNames(t *testing.T) {
	for l := range Links {
		if got, err := ParseLink(l.String()); err != nil || got != l || l.Claim() == l.String() {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	for o := OutcomeUnknown; o <= Broken; o++ {
		if got, err := ParseOutcome(o.String()); err != nil || got != o || o.Bad() != (o != OutcomeUnknown && o != Direct) {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	for _, bad := range []string{"", "Direct", "none"} {
		if _, err := ParseOutcome(bad); err == nil {
			t.Errorf("%q is an outcome", bad)
		}
		if _, err := ParseLink(bad); err == nil {
			t.Errorf("%q is a link", bad)
		}
	}
	if Links.String() == "proof" || State(9).String() == "" || Outcome(9).String() == "" {
		t.Error("names beyond the last")
	}
}
