// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A machine with more files than an archive can have is refused before anything is written, and one with as many is read again.
func TestTakeRefusesWhatReadWouldRefuse(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	all, err := Take(machine.Source{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	with := func(most int) Option { return func(s *Snapshot) { s.most = most } }
	if _, err := Take(machine.Source{Root: root}, with(all.tree.Len())); err != nil {
		t.Error(err)
	}
	for _, most := range []int{0, 10, all.tree.Len() - 1} {
		if _, err := Take(machine.Source{Root: root}, with(most)); err == nil || !strings.Contains(err.Error(), "more files that checks read than a snapshot can have") {
			t.Errorf("%d: %v", most, err)
		}
	}
	var b bytes.Buffer
	if err := all.Write(&b, "1"); err != nil {
		t.Fatal(err)
	}
	tree, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Len() > all.tree.Len() {
		t.Errorf("the archive has %d files, and %d were counted", tree.Len(), all.tree.Len())
	}
	n := 0
	for name, f := range all.All() {
		n++
		got, there := tree.Find(name)
		if !there || got.Link != f.Link || got.Dir != f.Dir || !bytes.Equal(got.Data, f.Data) {
			t.Errorf("%s: %+v, and it was %+v", name, got, f)
		}
	}
	if n != all.Len() {
		t.Errorf("%d files, and Len says %d", n, all.Len())
	}
}
