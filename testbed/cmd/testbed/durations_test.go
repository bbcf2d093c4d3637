// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestLongestFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "durations.json")
	if d := readDurations(file); len(d) != 0 {
		t.Errorf("before the first run: %v", d)
	}
	a, b, c, unknown := bootKey{machine: "a"}, bootKey{machine: "b"}, bootKey{stock: true}, bootKey{machine: "new", several: true}
	if err := (durations{"a": time.Minute, "b": time.Hour, c.String(): 2 * time.Minute}).write(file); err != nil {
		t.Fatal(err)
	}
	order := []bootKey{a, b, c, unknown}
	readDurations(file).longestFirst(order)
	if want := []bootKey{unknown, b, c, a}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	order = []bootKey{a, b, c}
	if readDurations(file).longestFirst(order); !slices.Equal(order, []bootKey{a, b, c}) {
		t.Errorf("with nothing known: %v", order)
	}
}
