// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// tooWide fails the test for lines that do not fit 100 columns. Commands are as long as they are.
func tooWide(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > human.Columns && !strings.HasPrefix(line, "$ ") {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// What `make demo` shows where 7.2 cannot be had: a kernel without peer-to-peer. The
// GPU's memory is registered, written, read and verified, is in the GPU with neither
// NIC, and the demo says so. testbed/peers/demo.sh tests the demo on 7.2.
//
// Of the machine's GPUs it has the first, which is below a switch with rxe0.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMDemo(t *testing.T) {
	for _, g := range testenv.SoftGPUs(t, "personality=amdgpu")[1:] {
		if err := os.WriteFile("/sys/bus/pci/drivers/softgpu/unbind", []byte(g.PCI), 0); err != nil {
			t.Fatal(err)
		}
	}
	data, err := exec.CommandContext(t.Context(), "bash", "demo.sh").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	out := string(data)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out)
		}
	})
	count := func(pattern string) int { return len(regexp.MustCompile(`(?m)`+pattern).FindAllString(out, -1)) }
	for _, c := range []struct {
		pattern string
		want    int
	}{
		{`^PASS: (6 of 6|1 of 1): every byte`, 2},
		{`^drm:renderD[0-9]+ .*rxe0 .* ok +system memory .*found nowhere in 65536`, 1},
		{`^drm:renderD[0-9]+/system .*rxe0 .* ok +system memory `, 1},
		{`^drm:0000:[0-9a-f:.]+ .*rxe1 .* ok +system memory .*found nowhere in 65536`, 1},
		{`^NOT IN THE GPU'S MEMORY: .* with rxe0 was allocated in VRAM, registered, written`, 1},
		{`^NOT IN THE GPU'S MEMORY: .* with rxe1 was allocated in VRAM, registered, written`, 1},
		{`found in BAR|peer-to-peer: 0000:`, 0},
		{`^[0-9]* checks: `, 1},
	} {
		if got := count(c.pattern); got != c.want {
			t.Errorf("%d of %q, want %d", got, c.pattern, c.want)
		}
	}
	tooWide(t, out)
	if !strings.Contains(out, "This is Linux 6.12") {
		t.Error("the demo does not say which kernel it is on")
	}
}
