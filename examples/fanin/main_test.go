// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/exampletest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestLength(t *testing.T) { exampletest.Length(t, 120, 0) }

var want = []string{"28 results", "as many connections as it may have", "client-7 has died", "client-31 has died"}

func TestFanin(t *testing.T) {
	exampletest.Runs(t, run, map[string]string{"fabric": "memory"}, want...)
}

//testbed:kernel 7.2 6.12
func TestVMFanin(t *testing.T) {
	testenv.VM(t)
	exampletest.Runs(t, run, map[string]string{"fabric": "", "nic": "rxe0"}, want...)
}
