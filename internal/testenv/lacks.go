// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"runtime"
	"slices"
)

// lacked are the features that Debian builds no kernel of an architecture with.
var lacked = map[string][]string{
	"arm64": {"dma-heap", "heap:system", "driver i915"}, // CONFIG_DMABUF_HEAPS is not set; i915 is of x86
}

// lackedByLargePages are those that it builds kernels with pages above 4 KiB without.
var lackedByLargePages = []string{"driver xe"}

// Lacks reports whether the testbed's kernels of this architecture and page size are built
// without a feature, whatever their series.
func Lacks(feature string) bool {
	return slices.Contains(lacked[runtime.GOARCH], feature) || os.Getpagesize() > 4<<10 && slices.Contains(lackedByLargePages, feature)
}
