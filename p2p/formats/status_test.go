// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// The proof decides. If a proof was asked for and did not succeed, the pair is unknown.
func TestProofStatus(t *testing.T) {
	whole := func(outcome chain.Outcome) *p2p.Proof { // each step passed
		p := p2p.NewProof()
		p.Outcome = outcome
		for r := range p.Steps {
			p.Steps[r] = p2p.Step{Result: p2p.ResultPass}
		}
		return p
	}
	direct := func() *p2p.Proof { return whole(chain.Direct) }
	refused := whole(chain.Refused)
	refused.Errno, refused.Steps[p2p.RungRegister].Result = unix.EPERM, p2p.ResultFail
	wrong, left, open := direct(), direct(), whole(chain.OutcomeUnknown)
	wrong.Steps[p2p.RungWrite].Result = p2p.ResultFail
	left.Steps[p2p.RungRelease].Result = p2p.ResultFail
	for name, c := range map[string]struct {
		predicted chain.Outcome
		proof     *p2p.Proof
		status    int
		word      string // of the headline
	}{
		"as predicted":       {chain.Direct, direct(), result.StatusGood, "1 of 1 pairs proven direct"},
		"not predicted":      {chain.OutcomeUnknown, direct(), result.StatusGood, "1 of 1 pairs proven direct"},
		"not proven":         {chain.Direct, open, result.StatusUnknown, "0 of 1 pairs proven direct"},
		"not tried":          {chain.Direct, nil, result.StatusUnknown, "0 of 1 pairs proven direct"},
		"staged":             {chain.Staged, whole(chain.Staged), result.StatusBad, "0 of 1"},
		"staged, not proven": {chain.Staged, open, result.StatusBad, "0 of 1"},
		"contradicted":       {chain.Direct, whole(chain.Staged), result.StatusBad, "1 prediction contradicted; 0 of 1"},
		"better than that":   {chain.Staged, direct(), result.StatusBad, "1 prediction contradicted; 1 of 1"},
		"another errno":      {chain.Refused, refused, result.StatusBad, "contradicted"},
		"wrong bytes":        {chain.Direct, wrong, result.StatusBad, "0 of 1"},
		"something is left":  {chain.Direct, left, result.StatusBad, "1 of 1"},
	} {
		m := machine.Open(t.TempDir())
		pair := p2p.Pair{Prediction: drivers.Prediction{Outcome: c.predicted, Errno: unix.EINVAL}, GPU: drivers.GPU{Exporter: drivers.Exporter{Class: drivers.ClassAMDGPU}}, Verdict: predicted(c.predicted).Conclude()}
		pair.Prove(m, c.proof)
		r := result.New(m, nil, nil, []p2p.Pair{pair})
		r.AddProofs(&result.Live{})
		if got := r.Status(); got != c.status {
			t.Errorf("%s: status %d, want %d", name, got, c.status)
		}
		if line := headline(Input{Found: &r}); !strings.Contains(line, c.word) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// predicted is a chain whose links come to an outcome.
func predicted(o chain.Outcome) (c chain.Chain) {
	for l := chain.Library; l <= chain.Fabric; l++ {
		c[l] = chain.Hold("")
	}
	switch o {
	case chain.Direct:
	case chain.OutcomeUnknown:
		c[chain.Attach] = chain.Open("not read")
	default:
		c[chain.Attach] = chain.Break(o, "it breaks")
	}
	return c
}
