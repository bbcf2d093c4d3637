// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedVar sets the seed of every test: to the one that a failed test has printed.
const seedVar = "GPURDMA_TEST_SEED"

// Seeded is a random source whose seed a failed test prints.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVar); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %#x: again with %s=%#x", seed, seedVar, seed)
	return rand.New(rand.NewPCG(seed, 0))
}
