// SPDX-License-Identifier: Apache-2.0

package result

import "github.com/gpurdma/gpurdma/p2p/chain"

// Of returns the answer to one link; false if the document has none.
func (p Pair) Of(l chain.Link) (Link, bool) {
	for _, link := range p.Links {
		if link.Link == l.String() {
			return link, true
		}
	}
	return Link{}, false
}

// Untried returns the outcome that the pair would have without its proof, and the link that would
// decide it; "" if no link does. A comparison uses it if only one of the two runs has proofs.
func (p Pair) Untried() (outcome string, decides string) {
	proof, log := chain.Proof.String(), chain.Log.String()
	if len(p.Links) == 0 || p.Decides != proof && p.Decides != log {
		return p.Outcome, p.Decides
	}
	if p.Predicted != chain.Direct.String() {
		return p.Predicted, p.predictedBy()
	}
	if l, _ := p.Of(chain.Log); l.State == chain.Breaks.String() {
		if p.Decides == log {
			return p.Outcome, log
		}
		return chain.OutcomeUnknown.String(), log
	}
	return p.Predicted, ""
}

// UntriedErrno returns the errno of the outcome that Untried returns; nil if it has none.
func (p Pair) UntriedErrno() *Errno {
	if _, decides := p.Untried(); decides != p.Decides {
		return p.Registration.Errno
	}
	return p.Errno
}

// predictedBy is the link that decides the prediction: the first that breaks, or else the first
// that is not known.
func (p Pair) predictedBy() string {
	for _, state := range []chain.State{chain.Breaks, chain.Unknown} {
		for l := chain.Library; l <= chain.Fabric; l++ {
			if link, ok := p.Of(l); ok && link.State == state.String() {
				return link.Link
			}
		}
	}
	return ""
}
