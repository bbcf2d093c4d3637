// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// A network device that is down is compared with those of its card: a virtual
// function belongs to the card of its physical one, whatever its address is.
func TestWhyALinkIsDown(t *testing.T) {
	down := put("sys/class/net/eth0/operstate", "down")
	for _, c := range []struct {
		edits  []edit
		result p2p.Result
		read   string
	}{
		{nil, fail, "down; the port is ACTIVE"},
		{[]edit{put(aPort+"/state", "1: DOWN")}, warn, "down; the port is not in use: 1: DOWN"},
		{[]edit{put(aPort+"/state", "1: DOWN"), put("sys/class/net/eth1/operstate", "lowerlayerdown")}, fail, "down; no NIC is up"},
		{[]edit{text(amdNIC+"/physfn", "../0000:16:00.0")}, warn, "down; it is of a virtual function, of 0000:16:00.0"},
		{[]edit{text(strings.Replace(amdNIC, "12:01.0/0000:14", "12:03.0/0000:16", 1)+"/physfn", "../0000:14:00.0")}, warn, "down; eth1 of the same card is up"},
		{[]edit{text(amdGPU+"/physfn", "../0000:14:00.0")}, warn, "down; the NIC has virtual functions, which have network devices of their own"},
		{[]edit{drop("sys/class/net/eth0/operstate")}, unknown, "there is no operstate"},
	} {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "NET-LINK", append([]edit{down}, c.edits...)...)
		i := slices.IndexFunc(found, func(f check.Finding) bool { return slices.Contains(f.Scope, "eth0") })
		if i < 0 || found[i].Result != c.result || found[i].Read != c.read {
			t.Errorf("%v, %q: %v", c.result, c.read, said(found))
		}
	}
}

// Virtual functions are looked for once, however many ports ask.
func TestLendersAreReadOnce(t *testing.T) {
	none := func(f *testenv.Tree) func(*testing.T, string) {
		for name := range maps.Keys(f.Files) {
			if strings.HasSuffix(name, "/gids/3") {
				delete(f.Files, name)
			}
		}
		return nil
	}
	root := written(t, testenv.Machines["mi300"](), []edit{none})
	m, s, err := only(root, "NET-GID", check.Live{})
	if err != nil || len(s.NICs) < 2 {
		t.Fatal(err)
	}
	times := asked(t, root, func() {
		if found := Run(m, s); worst(found) != fail {
			t.Error(said(found))
		}
	})
	if n := times["physfn"]; n > 100 {
		t.Errorf("%d times", n)
	}
}

// asked counts the files below root that f asks for, by their last name.
func asked(t *testing.T, root string, f func()) map[string]int {
	times := map[string]int{}
	stop := testenv.WatchFiles(t, root, func(name string) error {
		times[path.Base(name)]++
		return nil
	})
	defer stop()
	f()
	return times
}
