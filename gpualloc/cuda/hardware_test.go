// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
)

// The line for docs/hardware.md has the machine, and the times of allocating and
// exporting. No test asserts a time; these are for the record.
func TestHardwareRecord(t *testing.T) {
	if os.Getenv("GPURDMA_HARDWARE") == "" {
		t.Skip("for machines with a GPU: make hardware-test")
	}
	devices, err := Devices(gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if !d.DMABuf.OK {
			t.Errorf("%v exports no dma-bufs: %s; %s", d, strings.Join(d.DMABuf.Why, "; "), d.DMABuf.Remedy)
			continue
		}
		t.Logf("| %s | %s, CUDA %s | %s | %s | %s |", d.Name, moduleVersion(), versionText(d.DriverVersion),
			unix.ByteSliceToString(u.Release[:]), time.Now().UTC().Format(time.DateOnly), figures(t, d))
	}
}

// moduleVersion is the kernel module's, "?" if it does not say.
func moduleVersion() string {
	text, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}

// figures are medians of 32 allocations with their export.
func figures(t *testing.T, d Device) string {
	var out []string
	for _, spec := range []string{"", "/vmm"} {
		if spec != "" && !d.VMMRDMA {
			continue
		}
		a, err := gpualloc.Open(fmt.Sprintf("cuda:%d%s", d.Ordinal, spec), gpualloc.Env{})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{64 << 10, 64 << 20} {
			var took []time.Duration
			for range 32 {
				began := time.Now()
				b, err := a.Alloc(context.Background(), size, gpualloc.Options{})
				took = append(took, time.Since(began))
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(took)
			out = append(out, fmt.Sprintf("%d KiB%s %v", size>>10, spec, took[len(took)/2].Round(time.Microsecond)))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(out, ", ")
}
