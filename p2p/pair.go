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

// Judge answers each link for a GPU and a NIC, and concludes.
func Judge(m *machine.Machine, g drivers.GPU, n drivers.NIC) Pair {
	p := Pair{GPU: g, NIC: n}
	p.Prediction, p.Verdict = judge(m, g.Exporter, n.Importer)
	c := p.Verdict.Chain()
	if bad, ok := unserved(m, n); ok && c[chain.Route].State.Good() {
		c[chain.Route] = bad
	}
	c[chain.Log] = contradiction(m, g.Exporter, n.Importer, p.Prediction)
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
	c := p.Chain
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
	if r == nil {
		return nil
	}
	named := *r
	if command, ok := strings.CutSuffix(named.Command, " --nic "+anyNIC); ok {
		named.Command = command + " --nic " + p.NIC.Name
	}
	return &named
}

// Prove adds a proof to a pair, and concludes again. A nil proof means that the pair should have been tried
// and was not: such a pair is not direct.
func (p *Pair) Prove(m *machine.Machine, proof *Proof) {
	p.Proof = proof
	c := p.Verdict.Chain()
	c[chain.Proof] = proof.answer()
	p.Verdict = c.ConcludeProven()
	p.Remedy = p.remedy(m)
}

// Agrees says whether the proof shows the predicted outcome: No if the outcome differs, or if a refusal has
// another errno.
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

// Real reports a pair of PCI functions that hardware moves data between.
func (p Pair) Real() bool {
	return p.GPU.Exporter.PCI != nil && p.NIC.Importer.PCI != nil && !p.NIC.Software
}

// Name names a pair: "GPU -> NIC".
func (p Pair) Name() string { return p.GPU.Name + " -> " + p.NIC.Name }
