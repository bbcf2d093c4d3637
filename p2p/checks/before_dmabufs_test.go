// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A kernel from before there was a method that registers dma-bufs refuses each of
// them, and nothing else is worth a trial on it.
func TestBeforeDMABufs(t *testing.T) {
	for _, c := range []struct {
		edits   []edit
		refused bool
	}{
		{[]edit{release("5.10.0-30-amd64")}, true},
		{[]edit{release("5.10.0-30-amd64"), put("sys/module/ib_uverbs/taint", "")}, true},
		{[]edit{release("5.10.0-30-amd64"), put("sys/module/ib_uverbs/taint", "OE")}, false},
		{[]edit{release("5.10.0-1062-aws")}, false},
		{[]edit{release("5.12.0")}, false},
	} {
		for _, server := range []string{"small-hgx", "small-mi300"} {
			m := machine.Open(written(t, testenv.Machines[server](), c.edits))
			s := subject(m)
			for _, p := range s.Pairs {
				refused := p.Prediction.Outcome == chain.Refused && p.Prediction.Errno == unix.EPROTONOSUPPORT && p.Prediction.Stage == chain.StageUverbs
				if refused != c.refused {
					t.Errorf("%s, %s: %s: %v", server, m.Kernel.Release, p.Name(), p.Prediction)
				}
				if !c.refused {
					continue
				}
				if p.Remedy == nil || !strings.Contains(p.Remedy.Change, "newer kernel") || !p.Remedy.Direct {
					t.Errorf("%s: %+v", server, p.Remedy)
				}
			}
			for _, f := range Run(m, s) {
				switch {
				case f.Check.ID == "KRN-VERSION" && (f.Result == fail) != c.refused:
					t.Errorf("%s: %v %s", server, f.Result, f.Read)
				case f.Check.ID == "GPU-EXPORTER-OPS" && f.Result == fail && c.refused:
					t.Errorf("%s: the exporter is blamed: %s", server, f.Read)
				}
			}
		}
	}
}
