// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tutorials are the pages whose commands run this program.
var tutorials = []string{"../../docs/tutorials/first-transfer.md", "../../docs/tutorials/test-without-a-card.md"}

// steps runs the commands of the tutorials for which command returns what is to run in their place.
func steps(t *testing.T, want int, command func(pagetest.Step) string) {
	t.Helper()
	dir, n := t.TempDir(), 0
	pagetest.Program(t, dir, "build/bin/hello", asCommand)
	pagetest.Program(t, dir, "build/bin/hello.test", "HELLO_TEST_AS_TEST")
	for _, name := range tutorials {
		for _, s := range pagetest.Read(t, name).Steps() {
			run := command(s)
			if run == "" {
				continue
			}
			n++
			if err := s.Check(pagetest.Run(t, run, dir)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n != want {
		t.Errorf("%d commands, want %d", n, want)
	}
}

func TestTutorial(t *testing.T) {
	steps(t, 1, func(s pagetest.Step) string {
		if flags, ok := strings.CutPrefix(s.Command, "go run ./examples/hello "); ok {
			return "build/bin/hello " + flags
		}
		return ""
	})
}

// In the virtual machine, where `make vm` runs them.
//
//testbed:kernel 7.2 6.12
func TestVMTutorial(t *testing.T) {
	testenv.VM(t)
	steps(t, 3, func(s pagetest.Step) string {
		if run := s.Guest(); strings.Contains(run, "build/bin/hello") {
			return run
		}
		return ""
	})
}
