// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// Where the arguments of a call were hidden the MR has them, and what the core's helper
// was given is the call's own.
func TestHiddenArguments(t *testing.T) {
	const iova, length = 1 << 40, 0x10000
	for name, tt := range map[string]struct {
		have   uint32
		known  bool
		length uint64
	}{
		"none":         {abi.HaveMR, false, length},
		"the helper's": {abi.HaveMR | abi.HaveUmemArgs, true, 0x8000},
	} {
		var c clock
		j := testJoiner(1)
		r := j.conv.record(made(&c, 1, func(w *abi.Record) {
			w.Have, w.Length, w.MRIOVA = tt.have, 0x8000, iova
			if tt.have&abi.HaveUmemArgs == 0 {
				w.Length = 0
			}
		}))
		if r.ArgsKnown != tt.known || r.IOVA != iova || r.Length != tt.length {
			t.Errorf("%s: known %v, %#x bytes at %#x", name, r.ArgsKnown, r.Length, r.IOVA)
		}
	}
}
