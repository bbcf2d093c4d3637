// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// The flags of the command to run next read the same machine, and a shell takes them as they are.
func TestAgain(t *testing.T) {
	for want, a := range map[string]*app{
		"":                                    {},
		" --root ROOT":                        {source: machine.Source{Root: "ROOT"}},
		" --root 'a b/it'\\''s $HOME'":        {source: machine.Source{Root: "a b/it's $HOME"}},
		" --snapshot f.tar.gz":                {snapshotFile: "f.tar.gz", source: machine.Source{Root: "/tmp/unpacked"}},
		" --lspci a --lspci-tree b":           {lspciFile: "a", lspciTree: "b", source: machine.Source{Root: "/tmp/unpacked"}},
		" --sysfs s --proc p --kernel 6.12.1": {source: machine.Source{Sys: "s", Proc: "p", Release: "6.12.1"}},
		" --proofs /run/p":                    {proofs: "/run/p"},
	} {
		if got := a.again(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (&app{snapshotFile: standard}).again(); got != "" {
		t.Errorf("the standard input is read again: %q", got)
	}
}
