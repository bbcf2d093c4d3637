// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// However many NICs have a provider, libraries are read once.
func TestProvidersAreJudgedOnce(t *testing.T) {
	root := testenv.Machines["mi300"]().Write(t)
	m, s, _ := only(root, "CTR-LIBS", check.Live{})
	if len(s.NICs) < 4 {
		t.Fatalf("%d NICs", len(s.NICs))
	}
	asked := map[string]int{}
	testenv.WatchFiles(t, root, func(name string) error {
		asked[name[strings.LastIndexByte(name, '/')+1:]]++
		return nil
	})
	found := Run(m, s)
	// One to read it, one to know which file it is.
	if asked["libibverbs.so.1.14.50.0"] > 2 || asked["libibverbs"] > 1 || worst(found) != p2p.ResultPass {
		t.Errorf("%v: %v", asked, said(found))
	}
}

// A software NIC has the provider of its own driver.
func TestSoftwareProviders(t *testing.T) {
	const dir = "sys/class/infiniband/soft0/"
	for node, want := range map[string]string{"1: CA": "rxe", "4: RNIC": "siw"} {
		found := checked(t, testenv.Machines["small-mi300"](), check.Live{}, "CTR-LIBS", put(dir+"parent", "eth0"), put(dir+"node_type", node))
		if text := strings.Join(said(found), "\n"); !strings.Contains(text, "no "+want+".driver") {
			t.Errorf("%s: %s", node, text)
		}
	}
}

// ProviderNames finds each possible name in a library, at any offset.
func TestProviderNames(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "lib%s-rdmav": "", "\x00lib%s-rdmav34.so\x00": "lib%s-rdmav34.so\n",
		"a b/usr/lib64/libibverbs/lib%s-rdmav34.so lib%s-rdmav35.so\x00x\x00lib%s-rdmav36.so": "/usr/lib64/libibverbs/lib%s-rdmav34.so\nlib%s-rdmav35.so\nlib%s-rdmav36.so\n",
	} {
		if got := string(check.ProviderNames([]byte(text))); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
