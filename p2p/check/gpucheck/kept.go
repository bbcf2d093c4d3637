// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// proveKept compares the trace with the number of bytes that the GPU's driver counts in the GPU's
// memory. If either of the two shows that the buffer has moved, the proof fails.
func proveKept(l *check.Look) {
	check.PerProof(l, "nothing was registered", func(name string, p p2p.Pair) {
		s := p.Proof.Steps[p2p.RungPlace]
		if s.Result == p2p.ResultSkip {
			return
		}
		kept, text := p.Proof.Resident.Judge()
		switch {
		case kept == p2p.ResultFail && s.Result != p2p.ResultFail:
			l.Fail(name, nil, "%s", text)
		case s.Result != p2p.ResultUnknown:
			l.Say(s.Result, name, nil, "%s", s.Detail)
		case kept == p2p.ResultPass:
			l.Pass(name, nil, "%s", text)
		default:
			l.Unknown(name, nil, "%s; %s", s.Detail, text)
		}
	})
}
