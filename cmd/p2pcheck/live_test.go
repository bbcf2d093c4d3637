// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p"
)

// Drivers of which nothing is known are asked, and others are not.
func TestAsked(t *testing.T) {
	answers := map[string]ibvfd.Answer{"yes": ibvfd.Yes, "no": ibvfd.No, "silent": ibvfd.Unknown}
	var nics []p2p.NIC
	for _, name := range []string{"yes", "no", "silent", "broken"} {
		nics = append(nics, p2p.NIC{Name: name})
	}
	nics = append(nics, p2p.NIC{Name: "known", Importer: p2p.Importer{Kind: p2p.Pinned}})
	asked(nics, func(name string) (ibvfd.Support, error) {
		answer, ok := answers[name]
		if name == "known" {
			t.Error("a known driver was asked")
		}
		if !ok {
			return ibvfd.Support{DMABufKernel: ibvfd.Yes}, errors.New("broken")
		}
		return ibvfd.Support{DMABufKernel: answer}, nil
	})
	for i, want := range []p2p.Importer{{Imports: true}, {Kind: p2p.NoImporter}, {}, {}, {Kind: p2p.Pinned}} {
		if nics[i].Importer != want {
			t.Errorf("%s: %+v", nics[i].Name, nics[i].Importer)
		}
	}
}

// Who names the file of the configuration still looks at this machine.
func TestHere(t *testing.T) {
	for s, want := range map[p2p.Source]bool{{}: true, {Config: "/boot/config"}: true, {Root: "/"}: false, {Sys: "/sys"}: false, {Release: "7.2"}: false} {
		if here(s) != want {
			t.Errorf("%+v", s)
		}
	}
}
