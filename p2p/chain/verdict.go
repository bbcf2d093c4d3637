// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// Chain has an answer for each link, by its number.
type Chain [Links]Answer

// Verdict is what a pair comes to. Its zero value is unknown.
type Verdict struct {
	chain     Chain
	predicted conclusion // of the links up to Fabric
	final     conclusion // with log and proof
}

// conclusion is an outcome, and the link that decided it.
type conclusion struct {
	outcome Outcome
	link    Link
	by      bool // link decided: something else than that all links hold
}

// Conclude makes the verdict of a chain.
func (c Chain) Conclude() Verdict {
	v := Verdict{chain: c, predicted: c.predict()}
	v.final = v.predicted
	switch p := c[Proof]; p.State {
	case Holds, Costs:
		v.final = conclusion{Direct, Proof, true}
	case Breaks:
		v.final = conclusion{bad(p.Outcome), Proof, true}
	}
	if l := c[Log]; l.State == Breaks && v.final.outcome == Direct {
		v.final = conclusion{contrary(l.Outcome), Log, true}
	}
	return v
}

// ConcludeProven is Conclude for a pair that was to be proven: without a proof that holds it is
// not direct.
func (c Chain) ConcludeProven() Verdict {
	v := c.Conclude()
	if p := c[Proof]; v.final.outcome == Direct && !(p.State == Holds || p.State == Costs) {
		v.final = conclusion{OutcomeUnknown, Proof, true}
	}
	return v
}

// predict is the conjunction of the links that say what is going to happen. A link that is
// known to break decides. Where one before it is not known, that one may decide in another
// way, and what a registration does is then not predicted.
func (c Chain) predict() conclusion {
	var open, broken *Link
	for l := Library; l <= Fabric; l++ {
		switch s := c[l].State; {
		case s.Good():
		case s == Breaks:
			if broken == nil {
				at := l
				broken = &at
			}
		case open == nil && broken == nil:
			at := l
			open = &at
		}
	}
	switch {
	case broken != nil && open != nil:
		return conclusion{Broken, *broken, true}
	case broken != nil:
		return conclusion{bad(c[*broken].Outcome), *broken, true}
	case open != nil:
		return conclusion{OutcomeUnknown, *open, true}
	}
	return conclusion{outcome: Direct}
}

// bad is the outcome of a link that breaks, which is never a good one.
func bad(o Outcome) Outcome {
	if o.Bad() {
		return o
	}
	return Broken
}

// contrary is what the log makes of a pair that was direct: nothing better than unknown.
func contrary(o Outcome) Outcome {
	if o.Bad() {
		return o
	}
	return OutcomeUnknown
}

// Outcome is what the pair comes to, by all that is known of it.
func (v Verdict) Outcome() Outcome { return v.final.outcome }

// Predicted is what the links up to Fabric come to, without log and proof.
func (v Verdict) Predicted() Outcome { return v.predicted.outcome }

// Decides is the link that decided the outcome; false where the pair is direct since all links
// hold, and of the zero value.
func (v Verdict) Decides() (Link, bool) { return v.final.link, v.final.by }

// PredictedBy is the link that decided the prediction; false where all links hold.
func (v Verdict) PredictedBy() (Link, bool) { return v.predicted.link, v.predicted.by }

// Link is the answer of one link.
func (v Verdict) Link(l Link) Answer { return v.chain[l] }

// Chain has all answers.
func (v Verdict) Chain() Chain { return v.chain }

// Deciding is the answer that decided; zero where the pair is direct since all links hold.
func (v Verdict) Deciding() Answer {
	if l, ok := v.Decides(); ok {
		return v.chain[l]
	}
	return Answer{}
}

// Errno is the errno of a refusal, 0 of others and where it is not known.
func (v Verdict) Errno() unix.Errno {
	if v.Outcome() != Refused {
		return 0
	}
	return v.Deciding().Errno
}

// Stage is what refuses; "" of other outcomes and where it is not known.
func (v Verdict) Stage() Stage {
	if v.Outcome() != Refused {
		return ""
	}
	return v.Deciding().Stage
}

// Costs are the reasons why a direct pair is slower than it could be.
func (v Verdict) Costs() []string {
	var out []string
	if v.Outcome() != Direct {
		return nil
	}
	for _, a := range v.chain {
		if a.State == Costs {
			out = append(out, a.Text())
		}
	}
	return out
}

// Why is the chain of reasons up to the link that decides, the conclusion last. A proof that
// shows what was predicted comes after the reasons for that.
func (v Verdict) Why() []string {
	l, by := v.Decides()
	switch {
	case by && l == Proof && v.Outcome() == v.Predicted() && v.Outcome() != Direct:
		return append(v.why(v.predicted), v.chain[l].Why...)
	case by && l > Fabric: // the log and the proof speak for themselves
		return v.chain[l].Why
	}
	return v.why(v.final)
}

// why are the reasons of a conclusion by the links up to Fabric.
func (v Verdict) why(c conclusion) []string {
	last := Fabric
	if c.by {
		last = c.link
	}
	var out []string
	for i := Library; i <= last; i++ {
		// What is not asked says nothing here, and what is not known nothing beside what is.
		if s := v.chain[i].State; i != last && (s == NotAsked || s == Unknown) {
			continue
		}
		out = append(out, v.chain[i].Why...)
	}
	return out
}

// Short is the outcome, with the errno of a refusal.
func (v Verdict) Short() string {
	text := v.Outcome().String()
	if e := v.Errno(); e != 0 {
		text += " with " + errno.Name(e)
	}
	return text
}

// String is the outcome and the reason that decided it.
func (v Verdict) String() string {
	text := v.Short()
	if s := v.Stage(); s != "" {
		text += " by " + string(s)
	}
	return text + ": " + strings.Join(v.Why(), "; ")
}
