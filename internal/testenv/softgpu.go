// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SoftGPU is a software GPU of the testbed's machine.
type SoftGPU struct {
	Name        string // "gpu0": the machine's name for the device
	PCI         string // "0000:03:00.0"
	Personality string // whose ioctls it speaks: "amdgpu"
	VRAM        int64  // bytes behind its BAR
}

// SoftGPUs loads the software GPU's driver with module parameters
// ("personality=xe,i915"), and removes it when the test is over. The test fails
// then if something still holds it. docs/reference/softgpu.md lists parameters and files.
func SoftGPUs(t testing.TB, params ...string) []SoftGPU {
	t.Helper()
	VM(t)
	if !AtLeast(t, "6.12") {
		t.Skip("the software GPU is built for 6.12 and later")
	}
	if out, err := exec.Command("modprobe", append([]string{"softgpu"}, params...)...).CombinedOutput(); err != nil {
		t.Fatalf("modprobe softgpu (make vm-build builds it): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("modprobe", "-r", "softgpu").CombinedOutput(); err != nil {
			t.Errorf("modprobe -r softgpu: %v: %s", err, out)
		}
	})
	return loadedGPUs(t)
}

// loadedGPUs are the software GPUs that there are.
func loadedGPUs(t testing.TB) []SoftGPU {
	t.Helper()
	links, err := filepath.Glob("/run/gpurdma/pci/gpu*")
	if err != nil || len(links) == 0 {
		t.Fatalf("this machine has no device for a software GPU: choose one with //testbed:machine (%v)", err)
	}
	var out []SoftGPU
	for _, link := range links { // gpu0, gpu1, ...: Glob sorts
		g := SoftGPU{Name: filepath.Base(link)}
		dir, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		g.PCI = filepath.Base(dir)
		text, err := os.ReadFile(filepath.Join(dir, "personality"))
		if err != nil {
			t.Fatalf("softgpu does not drive %s: %v", g.Name, err)
		}
		g.Personality = strings.TrimSpace(string(text))
		g.VRAM = barSize(t, dir)
		out = append(out, g)
	}
	return out
}

// barSize is the size of the largest memory region: the VRAM.
func barSize(t testing.TB, dir string) int64 {
	t.Helper()
	var largest int64
	for i := range 6 {
		st, err := os.Stat(filepath.Join(dir, fmt.Sprintf("resource%d", i)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, st.Size())
	}
	return largest
}

// Set writes one of the GPU's debugfs files: "evict", "fail/create".
func (g SoftGPU) Set(t testing.TB, file, text string) {
	t.Helper()
	if err := g.TrySet(file, text); err != nil {
		t.Fatal(err)
	}
}

// TrySet is Set for what may be refused.
func (g SoftGPU) TrySet(file, text string) error {
	return os.WriteFile(g.debugfs(file), []byte(text), 0)
}

// Place says where the buffer with an inode number is, by the driver's own
// list: "vram", "system", "nowhere"; "" if there is no such buffer.
func (g SoftGPU) Place(t testing.TB, inode uint64) string {
	t.Helper()
	return g.Buffer(t, inode)["place"]
}

// Buffer is the line of a buffer in the driver's own list, nil if there is none.
func (g SoftGPU) Buffer(t testing.TB, inode uint64) map[string]string {
	t.Helper()
	for _, b := range g.Buffers(t) {
		if b["inode"] == fmt.Sprint(inode) {
			return b
		}
	}
	return nil
}

// Buffers is the driver's own list: "inode", "size", "place", "pins", "handles"
// and so on.
func (g SoftGPU) Buffers(t testing.TB) []map[string]string {
	t.Helper()
	text, err := os.ReadFile(g.debugfs("buffers"))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for line := range strings.Lines(string(text)) {
		b := map[string]string{}
		for _, f := range strings.Fields(line) {
			if key, value, ok := strings.Cut(f, "="); ok {
				b[key] = value
			}
		}
		out = append(out, b)
	}
	return out
}

func (g SoftGPU) debugfs(file string) string {
	return filepath.Join("/sys/kernel/debug/softgpu", g.PCI, file)
}

// WaitGone waits until the GPU has been unplugged, which happens a moment after
// its file was written.
func (g SoftGPU) WaitGone(t testing.TB) {
	t.Helper()
	wait(t, g.Name+" to vanish", func() bool {
		_, err := os.Stat("/sys/bus/pci/devices/" + g.PCI)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Rescan finds a GPU that was unplugged again.
func (g SoftGPU) Rescan(t testing.TB) {
	t.Helper()
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	wait(t, g.Name+" to come back", func() bool {
		_, err := os.Stat("/sys/bus/pci/devices/" + g.PCI)
		return err == nil
	})
}

func wait(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit(time.Minute)); time.Now().Before(end); {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}
