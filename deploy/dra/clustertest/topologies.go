// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/intake"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// snapshots are those of the test bed's machines.
const snapshots = "../../../cmd/p2pcheck/testdata/testbed/"

// all are the topologies, once they were read, which takes several seconds.
var (
	once sync.Once
	all  map[string]*node.Node
)

// Topologies are the machines of the corpus and of the test bed that have several GPUs and a direct pair.
func Topologies(t *testing.T) map[string]*node.Node {
	t.Helper()
	once.Do(func() { all = read(t) })
	return all
}

func read(t *testing.T) map[string]*node.Node {
	t.Helper()
	list := map[string]*node.Node{}
	add := func(name string, m *machine.Machine, o node.Options) {
		n, err := node.Look(m, o)
		if err == nil && len(n.GPUs) > 1 && len(n.Direct()) > 0 {
			list[name] = &n
		}
	}
	for _, c := range testenv.Corpus(t) {
		if !slices.ContainsFunc(c.Pairs, func(p testenv.CorpusPair) bool { return p.GPU != c.Pairs[0].GPU }) {
			continue // one GPU
		}
		add(c.Name, machine.Open(c.Tree.Write(t)), node.Options{})
	}
	files, err := filepath.Glob(snapshots + "*.tar.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		source, release, err := intake.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		add("test-bed-"+strings.TrimSuffix(filepath.Base(file), ".tar.gz"), source.Open(), node.Options{Software: true})
		release()
		_ = f.Close()
	}
	return list
}
