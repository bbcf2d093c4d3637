// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The proof decides. A prediction that was to be proven and was not is unknown.
func TestProofStatus(t *testing.T) {
	whole := func(outcome drivers.Outcome) *p2p.Proof { // each step passed
		p := p2p.NewProof()
		p.Outcome = outcome
		for r := range p.Steps {
			p.Steps[r] = p2p.Step{Result: p2p.ResultPass}
		}
		return p
	}
	direct := func() *p2p.Proof { return whole(drivers.Direct) }
	refused := whole(drivers.Refused)
	refused.Errno, refused.Steps[p2p.RungRegister].Result = unix.EPERM, p2p.ResultFail
	wrong, left, open := direct(), direct(), whole(drivers.OutcomeUnknown)
	wrong.Steps[p2p.RungWrite].Result = p2p.ResultFail
	left.Steps[p2p.RungRelease].Result = p2p.ResultFail
	for name, c := range map[string]struct {
		predicted drivers.Outcome
		proof     *p2p.Proof
		status    int
		word      string // of the headline
	}{
		"as predicted":       {drivers.Direct, direct(), result.StatusGood, "1 of 1 pairs proven direct"},
		"not predicted":      {drivers.OutcomeUnknown, direct(), result.StatusGood, "1 of 1 pairs proven direct"},
		"not proven":         {drivers.Direct, open, result.StatusUnknown, "0 of 1 pairs proven direct"},
		"not tried":          {drivers.Direct, nil, result.StatusUnknown, "0 of 1 pairs proven direct"},
		"staged":             {drivers.Staged, whole(drivers.Staged), result.StatusBad, "0 of 1"},
		"staged, not proven": {drivers.Staged, open, result.StatusBad, "0 of 1"},
		"contradicted":       {drivers.Direct, whole(drivers.Staged), result.StatusBad, "1 prediction contradicted; 0 of 1"},
		"better than that":   {drivers.Staged, direct(), result.StatusBad, "1 prediction contradicted; 1 of 1"},
		"another errno":      {drivers.Refused, refused, result.StatusBad, "contradicted"},
		"wrong bytes":        {drivers.Direct, wrong, result.StatusBad, "1 of 1"},
		"something is left":  {drivers.Direct, left, result.StatusBad, "1 of 1"},
	} {
		pair := p2p.Pair{Prediction: drivers.Prediction{Outcome: c.predicted, Errno: unix.EINVAL}, Proof: c.proof, GPU: drivers.GPU{Exporter: drivers.Exporter{Class: drivers.ClassAMDGPU}}}
		r := result.New(machine.Open(t.TempDir()), nil, nil, []p2p.Pair{pair})
		r.AddProofs(&result.Live{}, []p2p.Pair{pair})
		if got := r.Status(); got != c.status {
			t.Errorf("%s: status %d, want %d", name, got, c.status)
		}
		if line := headline(Input{Found: &r}); !strings.Contains(line, c.word) {
			t.Errorf("%s: %s", name, line)
		}
	}
}
