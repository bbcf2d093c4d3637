// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Pair is a GPU, a NIC, and the verdict on the two.
type Pair struct {
	GPU        drivers.GPU
	NIC        drivers.NIC
	Prediction drivers.Prediction // the predicted outcome of a registration
	Verdict    chain.Verdict      // the outcome of the pair, with the answer of each link
	Letters    machine.Letters
	Remedy     *chain.Remedy // nil if the pair is direct, or if there is no remedy
	Proof      *Proof        // nil if the pair was not tried
}

// Judge answers each link of the chain for a GPU and a NIC, and makes the verdict.
func Judge(m *machine.Machine, g drivers.GPU, n drivers.NIC) Pair {
	p := Pair{GPU: g, NIC: n}
	p.Prediction, p.Verdict = judge(m, g.Exporter, n.Importer)
	if other := dataDirect(m, g.Exporter, n.Importer); other != "" {
		p.Prediction.Notes = append(p.Prediction.Notes, other)
	}
	c := p.Verdict.Chain()
	if bad, ok := unserved(m, n); ok && c[chain.Route].State.Good() {
		c[chain.Route] = bad
	}
	c[chain.Log] = contradiction(m, g.Exporter, n.Importer, p.Prediction, nil)
	c[chain.Proof] = chain.Open("it was not tried").Fix(&chain.Remedy{Change: "try it", Command: tryPair(g.Exporter)})
	p.Verdict = c.Conclude()
	p.Remedy = p.remedy(m)
	if g.Exporter.PCI != nil && n.Importer.PCI != nil {
		p.Letters = m.Letters(*g.Exporter.PCI, *n.Importer.PCI)
	}
	return p
}

// unserved answers for a NIC that ib_uverbs does not serve: no program registers memory with it.
func unserved(m *machine.Machine, n drivers.NIC) (chain.Answer, bool) {
	const class = "sys/class/infiniband_verbs"
	if n.Uverbs != "" {
		return chain.Answer{}, false
	}
	load := &chain.Remedy{Change: "load it", Command: "modprobe ib_uverbs", Direct: true}
	switch verbs := m.Read(class, "abi_version"); {
	case verbs.Gone() && m.Root != "/" && !(m.WholeSys() && drivers.WithoutUverbs(m, n.Importer)):
		return chain.Open("the devices of ib_uverbs are not there, and whether it is loaded is not known").With(verbs.Where, "not there").
			Fix(&chain.Remedy{Change: "take the copy again"}), true
	case verbs.Gone():
		return chain.Break(chain.Broken, "ib_uverbs is not loaded, and so no program registers memory with %s", n.Name).
			With(verbs.Where, "not there").Fix(load), true
	case verbs.Err != nil:
		return chain.Open("whether ib_uverbs is loaded is not known: %s", verbs.Why()).With(verbs.Where, "not read"), true
	}
	return chain.Open("ib_uverbs is loaded, and which of its devices serves %s is not known", n.Name).
		With("/"+class, "no device of %s", n.Name), true
}

// judge answers the links that predict.
func judge(m *machine.Machine, e drivers.Exporter, i drivers.Importer) (drivers.Prediction, chain.Verdict) {
	p := drivers.Predict(m, e, i)
	c := *p.Chain
	c[chain.Library] = library(m, e, p.ByPeerMem)
	c[chain.Fabric] = fabric(m, e, i, p)
	return p, c.Conclude()
}

// remedy is the one thing to change for this pair: the remedy of the link that decides, or else the
// first change after which the prediction is better.
func (p Pair) remedy(m *machine.Machine) *chain.Remedy {
	if p.Verdict.Outcome() == chain.Direct {
		return nil
	}
	r := p.Verdict.Deciding().Remedy
	if r == nil {
		r = RemedyOf(m, p.GPU.Exporter, p.NIC.Importer)
	}
	return p.Named(r)
}

// Named returns the remedy with the name of the pair's NIC in place of the word that stands for any NIC.
func (p Pair) Named(r *chain.Remedy) *chain.Remedy {
	if r == nil {
		return nil
	}
	named := *r
	if command, ok := strings.CutSuffix(named.Command, " --nic "+anyNIC); ok {
		name := p.NIC.Name
		if at := p.NIC.Importer.PCI; at != nil && strings.HasSuffix(name, at.String()) { // a name that stands for one that is not known
			name = at.String()
		}
		named.Command = command + " --nic " + name
	}
	return &named
}

// Prove adds a proof to the pair, and makes the verdict again. A nil proof means that the pair should have
// been tried and was not: such a pair is not direct.
func (p *Pair) Prove(m *machine.Machine, proof *Proof) {
	p.Proof = proof
	c := p.proven(m, proof.Answer(), proof.last())
	if proof != nil {
		for _, line := range proof.Watch.Lines {
			if outcome, means := p.against(m, line); means != "" {
				c[chain.Log] = chain.Break(outcome, "while the pair was tried, %s: %s", means, line)
			}
		}
	}
	p.conclude(m, c.ConcludeProven())
}

// Heed reads the lines against the pair that the kernel has logged since the pair was tried, and makes the
// verdict again. The proof of another pair may have caused these lines. m must have been opened after that
// proof.
func (p *Pair) Heed(m *machine.Machine) {
	c := p.Verdict.Chain()
	if p.Proof == nil || p.Proof.Watch.Last == nil || c[chain.Log].State == chain.Breaks {
		return
	}
	if a := contradiction(m, p.GPU.Exporter, p.NIC.Importer, p.Prediction, p.Proof.Watch.Last); a.State == chain.Breaks {
		c[chain.Log] = a
		p.conclude(m, c.ConcludeProven())
	}
}

// Recall adds the answer of an earlier proof to the pair, and makes the verdict again. lastLine is the
// number of the last record of the kernel's log when that proof ended. If it is nil, it is not known, and
// each line of the log counts as newer than the proof.
func (p *Pair) Recall(m *machine.Machine, answer chain.Answer, lastLine *uint64) {
	if last, ok := cachedLog(m).Last(); lastLine != nil && (!ok || last < *lastLine) {
		lastLine = nil // no log of this boot has that record
	}
	c := p.proven(m, answer, lastLine)
	p.conclude(m, c.Conclude())
}

// proven is the chain of a pair with the answer of a proof. Lines of the log that are older than a proof
// that holds do not count.
func (p *Pair) proven(m *machine.Machine, answer chain.Answer, lastLine *uint64) chain.Chain {
	c := p.Verdict.Chain()
	c[chain.Proof] = answer
	if answer.State == chain.Holds && lastLine != nil {
		c[chain.Log] = contradiction(m, p.GPU.Exporter, p.NIC.Importer, p.Prediction, lastLine)
	}
	return c
}

func (p *Pair) conclude(m *machine.Machine, v chain.Verdict) {
	p.Verdict = v
	p.Remedy = p.remedy(m)
}

// against says what a line of the kernel's log means for the pair: "" if the line is about another pair.
func (p *Pair) against(m *machine.Machine, line string) (chain.Outcome, string) {
	if p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil {
		return chain.OutcomeUnknown, ""
	}
	return against(m, line, p.GPU.Exporter, p.NIC.Importer, p.Prediction)
}

// Agrees says whether the proof shows the predicted outcome: No if the outcome differs, or if a refusal
// has another errno; unknown if the proof or the prediction has no outcome, or if the prediction is Broken
// and the proof is not direct.
func (p Pair) Agrees() placement.Answer {
	predicted := p.Prediction.Outcome
	if p.Proof == nil || p.Proof.Outcome == chain.OutcomeUnknown {
		return placement.AnswerUnknown
	}
	switch {
	case predicted == chain.OutcomeUnknown, predicted == chain.Broken && p.Proof.Outcome != chain.Direct:
		return placement.AnswerUnknown
	case p.Proof.Outcome != predicted || p.Proof.Outcome == chain.Refused && p.Prediction.Errno != 0 && p.Proof.Errno != p.Prediction.Errno:
		return placement.No
	}
	return placement.Yes
}

// Real reports whether GPU and NIC are PCI functions, and hardware moves the data.
func (p Pair) Real() bool {
	return p.GPU.Exporter.PCI != nil && p.NIC.Importer.PCI != nil && !p.NIC.Software
}

// Name returns the name of the pair: "GPU -> NIC".
func (p Pair) Name() string { return p.GPU.Name + " -> " + p.NIC.Name }
