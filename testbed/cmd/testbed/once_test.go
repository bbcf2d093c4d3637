// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
)

// Runs of the same sources build a file once, runs of others anew, and a build that failed is
// tried again.
func TestOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p2p.test")
	var lock sync.Mutex
	n := 0
	var failure error
	build := func() error {
		lock.Lock()
		defer lock.Unlock()
		n++
		return failure
	}
	want := func(what string, builds int) {
		t.Helper()
		if n != builds {
			t.Errorf("%s: %d builds, want %d", what, n, builds)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := once(file, "a", build); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want("eight runs", 1)
	failure = errors.New("failed")
	if err := once(file, "b", build); !errors.Is(err, failure) {
		t.Error(err)
	}
	failure = nil
	if err := once(file, "b", build); err != nil {
		t.Error(err)
	}
	want("other sources", 3)
	for range 2 {
		if err := once(file, "", build); err != nil {
			t.Error(err)
		}
	}
	want("without a name", 5)
}
