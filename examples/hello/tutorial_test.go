// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
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

// guest returns the command that a step runs in a machine of this name, "" if it runs this program in none or in another.
func guest(s pagetest.Step, machine string) string {
	run, in := s.Guest(), "default"
	if m := machineName.FindStringSubmatch(s.Command); m != nil {
		in = m[1]
	}
	if in != machine || !strings.Contains(run, "build/bin/hello") {
		return ""
	}
	return run
}

var machineName = regexp.MustCompile(`\bMACHINE=(\S+)`)

// In the virtual machine, where `make vm` runs them.
//
//testbed:kernel 7.2 6.12
func TestVMTutorial(t *testing.T) {
	testenv.VM(t)
	steps(t, 3, func(s pagetest.Step) string { return guest(s, "default") })
}

// With a NIC that reaches the GPU's memory and with one that does not, Path says the same.
//
//testbed:machine switch
//testbed:kernel 7.2
func TestVMTutorialGPU(t *testing.T) {
	testenv.VM(t)
	t.Cleanup(func() { pagetest.Run(t, "modprobe -r softgpu", t.TempDir()) })
	steps(t, 1, func(s pagetest.Step) string { return guest(s, "switch") })
}

// The blocks of the page are the whole program behind its imports, in its order.
func TestTutorialIsWhole(t *testing.T) {
	main, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(main), "\n)\n\n")
	text := ""
	for _, b := range pagetest.Read(t, tutorials[0]).Of("go")[:7] {
		text += b.Text
	}
	squeezed := func(s string) string { return strings.ReplaceAll(s, "\n\n", "\n") }
	if program == "" || squeezed(text) != squeezed(program) {
		t.Errorf("the page has\n%s\nand the program is\n%s", text, program)
	}
}
