// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func TestPredictedCell(t *testing.T) {
	direct := result.Pair{Counts: true, Outcome: "direct", NCCL: "PIX"}
	slow, outside := direct, direct
	slow.Costs, outside.Counts = []string{"over the root"}, false
	between := slow // two sockets: no change makes it faster
	between.Links = []result.Link{{State: "costs"}}
	slow.Links = []result.Link{{State: "costs", Remedy: &result.Remedy{Change: "open the port"}}}
	for _, c := range []struct {
		pair result.Pair
		want cell
	}{
		{direct, cell{"direct PIX", "32"}}, {slow, cell{"direct^PIX", "33"}}, {between, cell{"direct PIX", "32"}}, {outside, cell{"-", ""}},
		{result.Pair{Counts: true, Outcome: "staged", NCCL: "SYS"}, cell{"STAGED SYS", "31"}}, {result.Pair{Counts: true, Outcome: "unknown"}, cell{"?", "33"}},
	} {
		if got := predictedCell(c.pair); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.pair, got, c.want)
		}
	}
}

// If the GPUs are in several domains, the text has their whole addresses.
func TestShortNames(t *testing.T) {
	at := func(domain uint32) result.GPU {
		a := pciaddr.Addr{Domain: domain, Bus: 0x13}
		return result.GPU{Name: a.String(), PCI: &a, Driver: "nvidia"}
	}
	for _, c := range []struct {
		gpus []result.GPU
		want string
	}{
		{[]result.GPU{at(0), {Name: "vgem", Driver: "vgem"}}, "GPU nvidia, 13:00.0, vgem"},
		{[]result.GPU{at(0), at(1)}, "GPU nvidia, 0000:13:00.0, 0001:13:00.0"},
		{[]result.GPU{{Name: "vgem", Driver: "vgem"}, at(0)}, "GPU, vgem, 13:00.0 nvidia"},
		{nil, ""},
	} {
		if got := strings.Join(shortNames(c.gpus), ", "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
