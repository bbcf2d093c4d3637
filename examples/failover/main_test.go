// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/exampletest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestLength(t *testing.T) { exampletest.Length(t, 130, 0) }

// One of two NICs loses its link in the middle, and gets another one.
func TestFailover(t *testing.T) {
	exampletest.Runs(t, run, map[string]string{"fabric": "memory", "size": "8388608"},
		"down: mlx5_1 reports: port error: port 1", "16 rounds of 8 MiB, and all bytes are as they should be")
}
