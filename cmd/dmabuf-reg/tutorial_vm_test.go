// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The commands of the tutorial print what it says, from the first one in the machine's shell on, and so does the one of
// the page on registration.
//
//testbed:machine switch
//testbed:kernel 7.2
func TestVMTutorialLie(t *testing.T) {
	testenv.VM(t)
	dir, n := t.TempDir(), 0
	pagetest.Program(t, dir, "bin/dmabuf-reg", asCommand)
	t.Cleanup(func() { pagetest.Run(t, "modprobe -r softgpu", dir) })
	lie, registration := pagetest.Read(t, "../../docs/tutorials/see-a-registration-lie.md"), pagetest.Read(t, "../../docs/explanation/registration.md")
	for _, s := range slices.Concat(lie.Steps(), registration.Steps()) {
		if s.Prompt != "#" {
			continue // starts the machine
		}
		n++
		out := pagetest.Run(t, s.Command, dir)
		if strings.HasPrefix(s.Command, "dmabuf-reg") || strings.HasPrefix(s.Command, "p2pcheck") {
			if len(s.Want) == 0 {
				t.Errorf("the page does not say what %s prints", s.Command)
			}
		}
		if err := s.Check(out); err != nil {
			t.Error(err)
		}
	}
	if n != 10 {
		t.Errorf("%d commands", n)
	}
}

// The machine of the other tutorial has the NICs that it shows.
//
//testbed:machine two-nics
//testbed:kernel 7.2 6.12
func TestVMTutorialMachine(t *testing.T) {
	testenv.VM(t)
	dir, n := t.TempDir(), 0
	pagetest.Program(t, dir, "bin/dmabuf-reg", asCommand)
	for _, s := range pagetest.Read(t, "../../docs/tutorials/test-without-a-card.md").Steps() {
		run := s.Guest()
		if !strings.HasPrefix(run, "dmabuf-reg") {
			continue
		}
		n++
		if err := s.Check(pagetest.Run(t, run, dir)); err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d commands", n)
	}
}
