// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// Chain has an answer for each link, by its number.
type Chain [Links]Answer

// Verdict is the outcome of a pair, and its reasons. Its zero value is unknown. The caller must
// not change the slices and remedies that its methods return: copies of a Verdict share them.
type Verdict struct {
	chain     *Chain     // nil is a chain of which nothing is known; nothing writes to it
	predicted conclusion // of the links up to Fabric
	final     conclusion // with log and proof
}

// conclusion is an outcome, and the link that decided it.
type conclusion struct {
	outcome Outcome
	link    Link
	by      bool // link decided; false if all links hold
}

// Conclude returns the verdict of the chain.
func (c Chain) Conclude() Verdict {
	v := Verdict{chain: &c, predicted: c.predict()}
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

// ConcludeProven is Conclude for a pair that was to be proven: if the link Proof does not
// hold, the pair is not direct.
func (c Chain) ConcludeProven() Verdict {
	v := c.Conclude()
	if p := c[Proof]; v.final.outcome == Direct && !(p.State == Holds || p.State == Costs) {
		v.final = conclusion{OutcomeUnknown, Proof, true}
	}
	return v
}

// predict combines the links up to Fabric. The first link that is known to break decides. If
// an earlier link is not known, that link may decide in another way: the result of a
// registration is then not predicted.
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

// bad is the outcome of a link that breaks. It never returns a good outcome.
func bad(o Outcome) Outcome {
	if o.Bad() {
		return o
	}
	return Broken
}

// contrary is the outcome of a direct pair that the log contradicts: unknown or worse.
func contrary(o Outcome) Outcome {
	if o.Bad() {
		return o
	}
	return OutcomeUnknown
}

// Outcome returns the outcome of the pair, by all of its links.
func (v Verdict) Outcome() Outcome { return v.final.outcome }

// Predicted returns the outcome by the links up to Fabric, without log and proof.
func (v Verdict) Predicted() Outcome { return v.predicted.outcome }

// Decides returns the link that has decided the outcome; false if the pair is direct because
// all links hold, and for the zero Verdict.
func (v Verdict) Decides() (Link, bool) { return v.final.link, v.final.by }

// Link returns the answer of one link.
func (v Verdict) Link(l Link) Answer {
	if v.chain == nil {
		return Answer{}
	}
	return v.chain[l]
}

// Chain returns the answers of all links.
func (v Verdict) Chain() Chain {
	if v.chain == nil {
		return Chain{}
	}
	return *v.chain
}

// WithRemedy returns the verdict with another remedy for a link, whose answer stays as it is.
func (v Verdict) WithRemedy(l Link, r *Remedy) Verdict {
	c := v.Chain()
	c[l].Remedy = r
	v.chain = &c
	return v
}

// Deciding returns the answer of the link that has decided the outcome; the zero Answer if
// the pair is direct because all links hold.
func (v Verdict) Deciding() Answer {
	if l, ok := v.Decides(); ok {
		return v.Link(l)
	}
	return Answer{}
}

// Errno returns the errno of a refusal; 0 for other outcomes, and if it is not known.
func (v Verdict) Errno() unix.Errno {
	if v.Outcome() != Refused {
		return 0
	}
	return v.Deciding().Errno
}

// Stage returns the stage that refuses; "" for other outcomes, and if it is not known.
func (v Verdict) Stage() Stage {
	if v.Outcome() != Refused {
		return ""
	}
	return v.Deciding().Stage
}

// Costs returns the reasons why a direct pair is slower than it could be.
func (v Verdict) Costs() []string {
	var out []string
	if v.Outcome() != Direct {
		return nil
	}
	for l := range Links {
		if a := v.Link(l); a.State == Costs {
			out = append(out, a.Text())
		}
	}
	return out
}

// Why returns the chain of reasons up to the link that decides, the conclusion last. If a
// proof shows the predicted outcome, the proof's reasons follow those of the prediction.
func (v Verdict) Why() []string {
	l, by := v.Decides()
	switch {
	case by && l == Proof && v.Outcome() == v.Predicted() && v.Outcome() != Direct:
		return append(v.why(v.predicted), v.Link(l).Why...)
	case by && l > Fabric: // the log and the proof need no other reasons
		return v.Link(l).Why
	}
	return v.why(v.final)
}

// why lists the reasons of a conclusion from the links up to Fabric.
func (v Verdict) why(c conclusion) []string {
	last := Fabric
	if c.by {
		last = c.link
	}
	var out []string
	for i := Library; i <= last; i++ {
		// Before the deciding link, links that are not asked or not known add no reason.
		if s := v.Link(i).State; i != last && (s == NotAsked || s == Unknown) {
			continue
		}
		out = append(out, v.Link(i).Why...)
	}
	return out
}

// Short returns the outcome, with the errno of a refusal.
func (v Verdict) Short() string {
	text := v.Outcome().String()
	if e := v.Errno(); e != 0 {
		text += " with " + errno.Name(e)
	}
	return text
}

// String returns the outcome, the errno and the stage of a refusal, and the reasons that Why returns.
func (v Verdict) String() string {
	text := v.Short()
	if s := v.Stage(); s != "" {
		text += " by " + string(s)
	}
	return text + ": " + strings.Join(v.Why(), "; ")
}
