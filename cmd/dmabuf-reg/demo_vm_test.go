// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

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
		{`^drm:renderD[0-9]+ +softgpu +rxe0 .* ok +system memory \(struct page\) +found nowhere in 65536 KiB of BARs`, 1},
		{`^drm:renderD[0-9]+/system +softgpu +rxe0 .* ok +system memory \(struct page\)`, 1},
		{`^drm:0000:[0-9a-f:.]+ +softgpu +rxe1 .* ok +system memory \(struct page\) +found nowhere in 65536 KiB of BARs`, 1},
		{`^NOT IN THE GPU'S MEMORY: .* with rxe0 was allocated in VRAM, registered, written, read and verified,$`, 1},
		{`^NOT IN THE GPU'S MEMORY: .* with rxe1 was allocated in VRAM, registered, written, read and verified,$`, 1},
		{`found in BAR|peer-to-peer: 0000:`, 0},
		{`^[0-9]* checks: `, 1},
	} {
		if got := count(c.pattern); got != c.want {
			t.Errorf("%d of %q, want %d", got, c.pattern, c.want)
		}
	}
	if !strings.Contains(out, "This is Linux 6.12") {
		t.Error("the demo does not say which kernel it is on")
	}
}
