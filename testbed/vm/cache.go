// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"sort"
	"time"
)

// keepImages is how many initramfs images of a series stay cached.
const keepImages = 6

// keepRuns is how many failed runs' logs stay.
const keepRuns = 20

// nowFunc is the clock.
var nowFunc = time.Now

// prune removes all but the newest files or directories of a pattern.
func prune(dir, pattern string, keep int) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) <= keep {
		return
	}
	modified := map[string]time.Time{}
	for _, n := range names {
		if fi, err := os.Stat(n); err == nil {
			modified[n] = fi.ModTime()
		}
	}
	sort.Slice(names, func(i, j int) bool { return modified[names[i]].After(modified[names[j]]) })
	for _, n := range names[keep:] {
		os.RemoveAll(n)
	}
}
