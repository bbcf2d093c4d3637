// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestCPUMask(t *testing.T) {
	for cpu, want := range map[int]string{0: "00000001", 31: "80000000", 32: "00000001,00000000", 69: "00000020,00000000,00000000"} {
		if got := cpuMask(cpu); got != want {
			t.Errorf("processor %d: %s, want %s", cpu, got, want)
		}
	}
}

// However a run ends, the workers may run where they could before.
func TestWithWorkersAt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpumask")
	says := func() string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	failure := errors.New("the run failed")
	for name, end := range map[string]func() (float64, error){
		"well":    func() (float64, error) { return 2, nil },
		"badly":   func() (float64, error) { return 0, failure },
		"a panic": func() (float64, error) { panic(failure) },
	} {
		if err := os.WriteFile(file, []byte("ffffffff\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var v float64
		var err error
		func() {
			defer func() {
				if p := recover(); p != nil {
					err = p.(error)
				}
			}()
			v, err = withWorkersAt(file, 33, func() (float64, error) {
				if got := says(); got != "00000002,00000000" {
					t.Errorf("%s: %q during the run", name, got)
				}
				return end()
			})
		}()
		if says() != "ffffffff\n" || (err != nil) != (name != "well") || err == nil && v != 2 {
			t.Errorf("%s: %v, %v; %q afterwards", name, v, err, says())
		}
	}
	if _, err := withWorkersAt(file+"-not", 0, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
