// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// NoGrowth compares what is used at the test's end with what was at its start. The
// kernel frees some of it a moment after the last close.
func NoGrowth[T comparable](t testing.TB, usage func(t testing.TB) T) {
	t.Helper()
	before := usage(t)
	t.Cleanup(func() {
		var after T
		for range 100 * Slow() {
			if after = usage(t); after == before {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("left behind: before %+v, after %+v", before, after)
	})
}

// Descriptors is how many this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// KernelMemory is what the kernel's objects and mappings take, in bytes.
func KernelMemory(t testing.TB) (total int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SUnreclaim", "VmallocUsed", "Percpu"} {
		_, rest, _ := strings.Cut(string(data), "\n"+name+":")
		var kib int64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			t.Fatalf("%s in meminfo: %v", name, err)
		}
		total += kib << 10
	}
	return total
}

// GoMemory is what Go's heap holds after a collection, in bytes.
func GoMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
