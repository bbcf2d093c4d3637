// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Pair is a GPU, a NIC, and what is to be said of the two.
type Pair struct {
	GPU        drivers.GPU
	NIC        drivers.NIC
	Prediction drivers.Prediction
	Letters    machine.Letters
	Remedy     *Remedy // nil of a pair that is direct
	Proof      *Proof  // nil of a pair that nobody tried
}

// Judge predicts for a GPU and a NIC.
func Judge(m *machine.Machine, g drivers.GPU, n drivers.NIC) Pair {
	p := Pair{GPU: g, NIC: n, Prediction: drivers.Predict(m, g.Exporter, n.Importer), Remedy: RemedyOf(m, g.Exporter, n.Importer)}
	if r := p.Remedy; r != nil {
		if command, ok := strings.CutSuffix(r.Command, " --nic "+anyNIC); ok {
			r.Command = command + " --nic " + n.Name
		}
	}
	if verbs := m.Read("sys/class/infiniband_verbs/abi_version"); n.Uverbs == "" && verbs.Gone() && p.Prediction.Outcome == drivers.Direct {
		p.Prediction.Outcome, p.Prediction.Address = drivers.OutcomeUnknown, drivers.AddressUnknown
		p.Prediction.Why = append(p.Prediction.Why, "ib_uverbs is not loaded, and so nothing registers memory with "+n.Name)
		p.Remedy = &Remedy{Change: "load it", Command: "modprobe ib_uverbs", Direct: true}
	}
	if g.Exporter.PCI != nil && n.Importer.PCI != nil {
		p.Letters = m.Letters(*g.Exporter.PCI, *n.Importer.PCI)
	}
	return p
}

// Real reports a pair of PCI functions that hardware moves data between.
func (p Pair) Real() bool {
	return p.GPU.Exporter.PCI != nil && p.NIC.Importer.PCI != nil && !p.NIC.Software
}
