// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

func sample() *State {
	one, two := pairs.Pair{GPU: "g0", NIC: "n0"}, pairs.Pair{GPU: "g1", NIC: "n1"}
	return &State{
		Schema: Schema, Boot: "b1",
		Claims: map[string]Claim{
			"uid-1": {"default", "a", "b1", []Device{{Request: "r", Pool: "node", Name: "gpu-g0-nic-n0", Pairs: []pairs.Pair{one}}}},
			"uid-2": {"default", "b", "b1", []Device{{Request: "r", Pool: "node", Name: "pairs-2", Pairs: []pairs.Pair{two, {GPU: "g2", NIC: "n2"}}}}},
		},
		Known: map[string][]pairs.Pair{"gpu-g0-nic-n0": {one}, "pairs-2": {one, two}}, Swept: "b1", Proving: &two,
	}
}

// Read returns what was written, and after another start of the machine all but the pair that was being tried.
func TestReadsWhatItWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s, err := Read(file, "b1")
	if err != nil || len(s.Claims)+len(s.Known) > 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	want := sample()
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	if s, err = Read(file, "b1"); err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = Read(file, "b2"); err != nil || !reflect.DeepEqual(s.Known, want.Known) || !reflect.DeepEqual(s.Claims, want.Claims) || s.Boot != "b2" || s.Proving != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if taken := s.Taken(); len(taken.Pairs) != 1 || len(taken.Sets) != 1 || len(taken.Sets[0]) != 2 {
		t.Errorf("%+v", taken)
	}
}

// A file that is not the driver's own is left as it is, and the error names it.
func TestRefusesOtherFiles(t *testing.T) {
	for text, says := range map[string]string{"{": "unexpected end", `{"schema":"other/v1"}`: `"other/v1"`, "": "unexpected end"} {
		file := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file, "b"); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A write that fails leaves the file, and nothing beside it.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	if err := os.Mkdir(file, 0o755); err != nil { // a rename over it fails
		t.Fatal(err)
	}
	if err := sample().Write(file); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := sample().Write(filepath.Join(dir, "none", "state")); err == nil {
		t.Error("there is no such directory")
	}
}

// Changes at the same time are all made.
func TestChangeTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Change(file, "b", func(s *State) error {
				s.Claims[fmt.Sprint("uid-", i)] = Claim{Name: "c"}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	no := errors.New("no")
	if err := Change(file, "b", func(s *State) error { s.Claims = nil; return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if s, err := Read(file, "b"); err != nil || len(s.Claims) != 20 {
		t.Errorf("%+v, %v", s, err)
	}
}
