// SPDX-License-Identifier: Apache-2.0

package proofs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A trial has the proof and the circumstances around it. One while which a module was loaded decides nothing.
func TestTry(t *testing.T) {
	for _, changes := range []bool{false, true} {
		root := server().Write(t)
		m := machine.Open(root)
		gpus, err1 := drivers.GPUs(m)
		nics, err2 := drivers.NICs(m)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		pair := p2p.Judge(m, gpus[1], nics[0])
		if _, ok := Try(m, &pair, func() *machine.Machine { return m }, func(p2p.Pair) *p2p.Proof { return nil }); ok || pair.Proof != nil {
			t.Errorf("%+v", pair.Proof)
		}
		tr, ok := Try(m, &pair, func() *machine.Machine { return machine.Open(root) }, func(p2p.Pair) *p2p.Proof {
			if changes {
				if err := os.WriteFile(filepath.Join(root, "sys/module/nvidia/srcversion"), []byte("A2\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return tried(chain.Direct, 1)
		})
		if !ok || tr.Pair.Proof == nil || tr.Pair.Proof != pair.Proof || (tr.Changed() != "") != changes {
			t.Fatalf("%+v", tr)
		}
		want := chain.Holds
		if changes {
			want = chain.Unknown
		}
		if l := pair.Verdict.Link(chain.Proof); l.State != want {
			t.Errorf("changed %v: the proof %v: %s", changes, l.State, l.Text())
		}
	}
}

// Processes that add at once lose none of the proofs. A file that is none of proofs is left as it is.
func TestAdd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proofs")
	replace := func(data []byte) error {
		if err := os.WriteFile(file+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	}
	m, pair := judged(t, server(), nil)
	pair.Prove(m, tried(chain.Direct, 1))
	nics, err := drivers.NICs(m)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, n := range nics {
		p := pair
		p.NIC = n
		trials := []Trial{trial(m, p)}
		all.Go(func() {
			if err := Add(file, m, trials, time.Now(), replace); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s, err := ReadFile(file)
	if err != nil || len(s.Records) != len(nics) || len(nics) < 2 {
		t.Errorf("%d records of %d NICs, %v", len(s.Records), len(nics), err)
	}
	no := errors.New("no")
	if err := Add(file, m, nil, time.Now(), func([]byte) error { return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Add(file, m, nil, time.Now(), replace); err == nil || !strings.Contains(err.Error(), file+": it has no proofs") {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
	if err := Add(filepath.Join(file, "none", "f"), m, nil, time.Now(), replace); err == nil || !strings.Contains(err.Error(), "keep the proofs: open ") {
		t.Error(err)
	}
}
