// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// After another start of the machine, devices that are not there are forgotten, once, and sets only if there are
// many devices.
func TestSweep(t *testing.T) {
	for name, c := range map[string]struct {
		boot string
		gone string
		most int
		want []string
	}{
		"the same start":          {"b1", "n0", 0, []string{"gpu-g0-nic-n0", "pairs-2"}},
		"all is there":            {"b2", "", 2, []string{"gpu-g0-nic-n0", "pairs-2"}},
		"a NIC of a set is gone":  {"b2", "n1", 2, []string{"gpu-g0-nic-n0"}},
		"a NIC of both is gone":   {"b2", "n0", 2, nil},
		"there are many":          {"b2", "", 1, []string{"gpu-g0-nic-n0"}},
		"many, and a NIC is gone": {"b2", "n1", 1, []string{"gpu-g0-nic-n0"}},
	} {
		s := sample()
		s.Boot = c.boot
		there := func(p pairs.Pair) bool { return p.NIC != c.gone }
		s.Sweep(there, c.most)
		if got := slices.Sorted(maps.Keys(s.Known)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v is left, want %v", name, got, c.want)
		}
		s.Known["new"] = []pairs.Pair{{GPU: "g9", NIC: c.gone}}
		if s.Sweep(there, 0); s.Known["new"] == nil {
			t.Errorf("%s: swept twice", name)
		}
	}
}

// A file of an earlier version has no boots of its claims: they were prepared in that of the file.
func TestReadsEarlierVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte(`{"schema":"dra-p2p/v1","boot":"b1","claims":{"u":{"name":"a","devices":[]}},"known":{"gpu-g0-nic-n0":[{"gpu":"g0","nic":"n0"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(file, "b2")
	if err != nil || s.Claims["u"].Boot != "b1" || s.Swept != "b1" || len(s.Known) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A claim for a look holds nothing, and keeps the pair from being tried all the same.
func TestHolder(t *testing.T) {
	s := sample()
	for _, c := range []struct {
		uid, gpu, nic string
		want          string
		used          bool
	}{
		{"uid-1", "g0", "n0", "", true}, {"uid-3", "g0", "n9", "a", true}, {"uid-3", "g9", "n2", "b", true}, {"uid-3", "g9", "n9", "", false},
	} {
		p := pairs.Pair{GPU: c.gpu, NIC: c.nic}
		if got, ok := s.Holder(c.uid, p); got.Name != c.want || ok != (c.want != "") || s.Used(p) != c.used {
			t.Errorf("%+v: %q, used %v", c, got.Name, s.Used(p))
		}
	}
	claim := s.Claims["uid-1"]
	claim.Devices[0].Admin = true
	if p := (pairs.Pair{GPU: "g0", NIC: "n9"}); !s.Used(p) {
		t.Error("a look is no use")
	} else if c, ok := s.Holder("uid-3", p); ok {
		t.Errorf("%s holds it for a look", c.Name)
	}
}

// One caller at a time has the lock, also in one process, and a caller that waits gets it when it is free.
func TestProofLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	one, err := TryLock(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(file); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), lockEvery)
	defer stop()
	if _, err := WaitLock(ctx, file); !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	got := make(chan error)
	go func() {
		two, err := WaitLock(t.Context(), file)
		if err == nil {
			two.Unlock()
		}
		got <- err
	}()
	time.Sleep(2 * lockEvery) // it waits, most likely
	one.Unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if _, err := TryLock(filepath.Join(file, "none", "state")); err == nil || errors.Is(err, ErrLocked) {
		t.Error(err)
	}
}
