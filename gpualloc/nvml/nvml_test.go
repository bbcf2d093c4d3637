// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"errors"
	"math"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
)

// This binary starts without the driver, which is more than it seems.
func TestGPUs(t *testing.T) {
	gpus, err := GPUs()
	if err == nil {
		for _, g := range gpus { // a machine with GPUs
			if !strings.HasPrefix(g.UUID, "GPU-") || g.Memory.Total <= 0 || g.Memory.Free() > g.Memory.Total {
				t.Errorf("%+v", g)
			}
		}
		return
	}
	if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "no NVIDIA driver") || !strings.Contains(err.Error(), "install") && !strings.Contains(err.Error(), "modprobe") {
		t.Error(err)
	}
}

// double builds the library in testdata.
func double(t *testing.T, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), library)
	out, err := exec.Command("cc", append(flags, "-shared", "-fPIC", "-Wall", "-Werror", "-o", file, "testdata/nvml.c")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

func TestList(t *testing.T) {
	lib := double(t)
	for range 2 { // the library can be loaded again
		gpus, err := list(lib)
		if err != nil {
			t.Fatal(err)
		}
		want := []GPU{
			{Name: "Double 1", UUID: "GPU-00000000-0000-0000-0000-000000000001", Memory: Usage{80 << 30, 1 << 30}, BAR1: &Usage{256 << 20, 1 << 20}},
			{Index: 1, Name: "Double 2", UUID: "GPU-00000000-0000-0000-0000-000000000002", Memory: Usage{80 << 30, 1 << 30}},
		}
		want[0].PCI.Domain, want[0].PCI.Bus = 0x10000, 0x41
		want[1].PCI.Domain, want[1].PCI.Bus = 0x10000, 0x42
		if !reflect.DeepEqual(gpus, want) || gpus[0].BAR1.Free() != 255<<20 {
			t.Errorf("%+v", gpus)
		}
	}
}

func TestRefusals(t *testing.T) {
	lib := double(t)
	for _, c := range []struct {
		fail, words string
		code        int // 0: ErrNoDriver
	}{
		{"nvmlInit:9", "modprobe nvidia", 0},
		{"nvmlInit:4", "Insufficient Permissions (NVML 4); run as root", 4},
		{"nvmlInit:18", "different versions", 18},
		{"nvmlShutdown:999", "nvmlShutdown", 999},
		{"nvmlDeviceGetCount:999", "nvmlDeviceGetCount", 999},
		{"nvmlDeviceGetHandleByIndex:15", "GPU 0", 15},
		{"nvmlDeviceGetName:15", "nvmlDeviceGetName", 15},
		{"nvmlDeviceGetUUID:15", "nvmlDeviceGetUUID", 15},
		{"nvmlDeviceGetPciInfo:15", "nvmlDeviceGetPciInfo", 15},
		{"nvmlDeviceGetMemoryInfo:15", "nvmlDeviceGetMemoryInfo", 15},
		{"nvmlDeviceGetBAR1MemoryInfo:15", "nvmlDeviceGetBAR1MemoryInfo", 15},
	} {
		t.Setenv("GPURDMA_NVML_FAIL", c.fail)
		_, err := list(lib)
		var refusal *Error
		var detail *failure.Error
		if !errors.As(err, &detail) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v; want %q", c.fail, err, c.words)
		}
		if c.code == 0 && !errors.Is(err, ErrNoDriver) || c.code != 0 && (!errors.As(err, &refusal) || refusal.Code != c.code) {
			t.Errorf("%s: %v; want code %d", c.fail, err, c.code)
		}
	}
	t.Setenv("GPURDMA_NVML_FAIL", "nvmlDeviceGetBAR1MemoryInfo:3")
	gpus, err := list(lib)
	if err != nil || slices.ContainsFunc(gpus, func(g GPU) bool { return g.BAR1 != nil }) {
		t.Errorf("GPUs without BAR 1: %+v, %v", gpus, err)
	}
}

func TestConfidential(t *testing.T) {
	lib := double(t)
	for state, want := range map[string]bool{"0": false, "1": true} {
		t.Setenv("GPURDMA_NVML_CC", state)
		if on, err := confidential(lib); on != want || err != nil {
			t.Errorf("%s: %v, %v", state, on, err)
		}
	}
	t.Setenv("GPURDMA_NVML_FAIL", "nvmlSystemGetConfComputeState:3")
	if on, err := confidential(lib); on || err != nil {
		t.Errorf("GPUs that have none: %v, %v", on, err)
	}
	t.Setenv("GPURDMA_NVML_FAIL", "nvmlSystemGetConfComputeState:999")
	var refusal *Error
	if _, err := confidential(lib); !errors.As(err, &refusal) || refusal.Code != 999 {
		t.Error(err)
	}
}

func TestPeers(t *testing.T) {
	lib := double(t)
	for code, want := range map[string]string{"0": "OK", "1": "chipset not supported", "77": "unknown (77)"} {
		t.Setenv("GPURDMA_NVML_P2P", code)
		all, err := peers(lib)
		if err != nil || len(all) != 1 || all[0].Read != "OK" || all[0].Write != want || all[0].OK() != (code == "0") || all[0].A.Bus != 0x41 || all[0].B.Bus != 0x42 {
			t.Errorf("%s: %+v, %v", code, all, err)
		}
	}
	for _, function := range []string{"nvmlDeviceGetP2PStatus", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo"} {
		t.Setenv("GPURDMA_NVML_FAIL", function+":15")
		if _, err := peers(lib); err == nil || !strings.Contains(err.Error(), function) {
			t.Error(function, err)
		}
	}
}

// A library from before a function answers an error: a call would end the
// process.
func TestOldLibrary(t *testing.T) {
	lib := double(t, "-DOLD")
	_, err1 := confidential(lib)
	_, err2 := peers(lib)
	for _, err := range []error{err1, err2} {
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Code != 13 {
			t.Error(err)
		}
	}
}

func TestCheckBAR1(t *testing.T) {
	g := GPU{Name: "H100", UUID: "GPU-1", BAR1: &Usage{Total: 256 << 20, Used: 56 << 20}}
	if err := errors.Join(g.CheckBAR1(200<<20), g.CheckBAR1(), GPU{}.CheckBAR1(1<<40)); err != nil {
		t.Error(err)
	}
	err := g.CheckBAR1(200<<20 + 1)
	if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), "BAR 1 has 200 MiB free of 256 MiB") {
		t.Error(err)
	}
	// Each dma-buf has pages of its own: 10,000 of 4 KiB are no 40 MiB.
	many := slices.Repeat([]int64{4 << 10}, 10_000)
	if got := Window(many...); got != 10_000*64<<10 {
		t.Errorf("%d bytes", got)
	}
	if err := g.CheckBAR1(many...); !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), "10000 dma-bufs take 625 MiB") {
		t.Error(err)
	}
	if err := g.CheckBAR1(many[:3200]...); err != nil {
		t.Error(err)
	}
	if err := g.CheckBAR1(many[:3201]...); err == nil {
		t.Error("one too many is accepted")
	}
	if got := Window(math.MaxInt64-1, 1); got != math.MaxInt64 {
		t.Errorf("%d bytes", got)
	}
}
