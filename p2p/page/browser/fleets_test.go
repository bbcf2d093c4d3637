// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/page"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// good is a machine on which every pair is direct, without the checks that this test cannot answer.
func good(t *testing.T, name string) result.Run {
	run := corpus(t, name).Run
	run.Checks = slices.DeleteFunc(slices.Clone(run.Checks), func(f result.Finding) bool { return f.Result == "unknown" || f.Result == "fail" })
	run.Tally = result.TallyOf(run.Checks)
	if run.Summary.Direct != run.Summary.Total() || run.Status() != result.StatusGood {
		t.Fatalf("%s: %v, %d", name, run.Summary, run.Status())
	}
	return run
}

// named is a run on another kernel.
func named(run result.Run, kernel string) result.Run {
	run.Machine.Kernel = kernel
	return run
}

// fleets are what a site can look like.
var fleets = map[string]func(*testing.T) *page.Page{
	"all-good": func(t *testing.T) *page.Page {
		g := gather()
		g.add("gpu", 400, good(t, "dgx-h100"))
		return g.page()
	},
	"few-bad": func(t *testing.T) *page.Page {
		g := gather()
		was := good(t, "dgx-h100")
		g.add("gpu-a", 380, was)
		bad := corpus(t, "hgx-kernel-5.10").Run
		g.add("gpu-b", 3, bad)
		off := corpus(t, "hgx-remap-off").Run
		off.Baseline = "/etc/p2pcheck.baseline.json"
		off.Drift, off.Uncompared = fleet.Compare(was, off)
		g.add("gpu-c", 2, off)
		return g.page()
	},
	"mixed": func(t *testing.T) *page.Page {
		g := gather()
		g.add("dgx", 120, good(t, "dgx-h100"))
		for i, name := range []string{"oci-bm-gpu-h100-8", "mi300x-debian-6.12", "rccl-mi250-16p1h", "geforce-4090", "hgx-kernel-5.10", "h100-guest", "hgx-remap-off", "aws-p5", "wrong-socket", "flat-vm"} {
			g.add(fmt.Sprintf("%s-", name), 3+5*i, corpus(t, name).Run)
		}
		g.merge.AddUnread("broken00001", fmt.Errorf("it is empty"))
		return g.page()
	},
	"all-unknown": func(t *testing.T) *page.Page {
		g := gather()
		g.add("guest", 64, corpus(t, "h100-guest").Run)
		g.add("other", 30, corpus(t, "azure-nd-h100-v5").Run)
		return g.page()
	},
}

// machines are one with a GPU, one with 8 and one with 16.
var machines = []string{"case-10-w7900-coreos", "case-07-bad-acs", "rccl-mi250-16p1h", "wrong-socket", "case-07-gb300-data-direct"}

// all are all pages, by name.
func all(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, of := range fleets {
		out["fleet-"+name] = html(t, of(t))
	}
	for _, name := range machines {
		l := corpus(t, name)
		out["machine-"+name] = html(t, page.Machine("machine0", l.Run, l.Tree))
	}
	return out
}
