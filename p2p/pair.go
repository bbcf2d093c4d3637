// SPDX-License-Identifier: Apache-2.0

package p2p

import "strings"

// Pair is a GPU, a NIC, and what is to be said of the two.
type Pair struct {
	GPU        GPU
	NIC        NIC
	Prediction Prediction
	Letters    Letters
	Remedy     *Remedy // nil of a pair that is direct
	Proof      *Proof  // nil of a pair that nobody tried
}

// Pair predicts for a GPU and a NIC.
func (m *Machine) Pair(g GPU, n NIC) Pair {
	p := Pair{GPU: g, NIC: n, Prediction: m.Predict(g.Exporter, n.Importer), Remedy: m.Remedy(g.Exporter, n.Importer)}
	if r := p.Remedy; r != nil {
		if command, ok := strings.CutSuffix(r.Command, " --nic "+anyNIC); ok {
			r.Command = command + " --nic " + n.Name
		}
	}
	if verbs := m.read("sys/class/infiniband_verbs/abi_version"); n.Uverbs == "" && verbs.gone() && p.Prediction.Outcome == Direct {
		p.Prediction.Outcome, p.Prediction.Address = OutcomeUnknown, AddressUnknown
		p.Prediction.Why = append(p.Prediction.Why, "ib_uverbs is not loaded, and so nothing registers memory with "+n.Name)
		p.Remedy = &Remedy{Change: "load it", Command: "modprobe ib_uverbs", Direct: true}
	}
	if g.Exporter.PCI != nil && n.Importer.PCI != nil {
		p.Letters = m.Letters(*g.Exporter.PCI, *n.Importer.PCI)
	}
	return p
}
