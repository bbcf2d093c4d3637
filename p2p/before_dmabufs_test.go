// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
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
		for _, machine := range []string{"small-hgx", "small-mi300"} {
			m := Open(written(t, testenv.Machines[machine](), c.edits))
			s := subject(m)
			for _, p := range s.Pairs {
				refused := p.Prediction.Outcome == Refused && p.Prediction.Errno == unix.EPROTONOSUPPORT && p.Prediction.Stage == StageUverbs
				if refused != c.refused {
					t.Errorf("%s, %s: %s: %v", machine, m.Kernel.Release, p.name(), p.Prediction)
				}
				if !c.refused {
					continue
				}
				if p.Remedy == nil || !strings.Contains(p.Remedy.Change, "newer kernel") || !p.Remedy.Direct {
					t.Errorf("%s: %+v", machine, p.Remedy)
				}
			}
			for _, f := range m.Check(s) {
				switch {
				case f.Check.ID == "KRN-VERSION" && (f.Result == fail) != c.refused:
					t.Errorf("%s: %v %s", machine, f.Result, f.Read)
				case f.Check.ID == "GPU-EXPORTER-OPS" && f.Result == fail && c.refused:
					t.Errorf("%s: the exporter is blamed: %s", machine, f.Read)
				}
			}
		}
	}
}
