// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// victim is a machine with much that is wrong, in memory, as its snapshot is read.
type victim struct {
	name    string
	tree    *files.Tree
	entries map[string]files.File
	names   []string          // of files and links
	worst   map[string]string // of each check, on the whole machine
	direct  map[string]bool   // pairs
}

// victims are of NVIDIA and AMD, and one of the test bed's, whose switch redirects.
func victims(t *testing.T) []*victim {
	mi300 := testenv.Machines["small-mi300"]()
	mi300.Release, mi300.Config = "6.12.1", testenv.WithoutP2PDMA
	mi300.Functions = strings.NewReplacer("acs=0x00", "acs=0x1d", ":identity", ":DMA", "dma_mask_bits=64", "dma_mask_bits=40").Replace(mi300.Functions)
	mi300.Files["proc/sys/kernel/numa_balancing"] = "1\n"
	mi300.Files["sys/module/amdgpu/parameters/pcie_p2p"] = "N\n"
	packed := func(tree testenv.Tree) []byte {
		root := tree.Write(t)
		all, err := snapshot.Take(machine.Source{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := all.Write(&b, version); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	taken, err := os.ReadFile("testdata/testbed/switch-acs.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	var out []*victim
	for _, m := range []struct {
		name    string
		archive []byte
	}{{"small-hgx", packed(bad())}, {"small-mi300", packed(mi300)}, {"switch-acs", taken}} {
		tree, err := snapshot.Read(bytes.NewReader(m.archive))
		if err != nil {
			t.Fatal(err)
		}
		v := &victim{name: m.name, tree: tree, entries: map[string]files.File{}}
		for name, file := range tree.All() {
			if !file.Dir {
				v.entries[name] = file
			}
		}
		v.names = slices.Sorted(maps.Keys(v.entries))
		var status int
		var unread error
		v.worst, v.direct, status, unread = v.look()
		if status == cli.ExitOK || unread != nil || len(v.names) < 100 || len(v.worst) < 100 {
			t.Fatalf("%s: status %d, %v, %d files, %d checks", v.name, status, unread, len(v.names), len(v.worst))
		}
		out = append(out, v)
	}
	return out
}

// look checks the machine and prints the report: the worst of each check, the
// pairs that are direct, the status, and what found no devices.
func (v *victim) look() (worst map[string]string, direct map[string]bool, status int, unread error) {
	var out, stderr bytes.Buffer
	dir, done := files.Mount(v.tree) // for one look
	defer done()
	a := &app{stdout: &out, stderr: &stderr, source: machine.Source{Root: dir}}
	found, unread := a.look(a.check)
	status = a.finish("check", found, unread)
	r, ok := found.(checkOutput)
	if !ok {
		return nil, nil, status, errors.Join(unread, errors.New("no result"))
	}
	worst = map[string]string{}
	for _, f := range r.Checks {
		if was, there := worst[f.ID]; !there || slices.Index(result.Ranks, f.Result) < slices.Index(result.Ranks, was) {
			worst[f.ID] = f.Result
		}
	}
	direct = map[string]bool{}
	for _, p := range r.Pairs {
		direct[p.GPU+" -> "+p.NIC] = p.Outcome == chain.Direct.String()
	}
	return worst, direct, status, unread
}

// brokenSeeds are how many snapshots are broken. FuzzBrokenMachine of p2p/checks goes on from there.
const brokenSeeds = 3 * 667

// A broken snapshot crashes nothing, and makes no bad machine good, no failed check pass, and no pair
// direct. The test removes, cuts, locks or fills with noise one to three of its files, and leads links
// elsewhere. If the devices cannot be listed then, which is an error, the test compares no check.
func TestBrokenSnapshots(t *testing.T) {
	testenv.Exhaustive(t)
	all := victims(t)
	for seed := range uint64(brokenSeeds) {
		v := all[seed%uint64(len(all))]
		random := rand.New(rand.NewPCG(seed, 1))
		broken := map[string]string{}
		for range 1 + random.IntN(3) {
			name := v.names[random.IntN(len(v.names))]
			broken[name] = v.damage(t, name, random)
		}
		worst, direct, status, unread := v.look()
		for name := range broken {
			v.put(t, name, v.entries[name])
		}
		if status < cli.ExitFailed || status > cli.ExitUnavailable {
			t.Errorf("%s, %v: status %d", v.name, broken, status)
		}
		if unread != nil {
			continue
		}
		excused := func(check string) bool {
			for name, how := range broken {
				if testenv.Excused(check, name, how) {
					return true
				}
			}
			return false
		}
		for id, result := range worst {
			if was := v.worst[id]; result == "pass" && was != "pass" && was != "skip" && !excused(id) {
				t.Errorf("%s, %v: %s was %s, and passes", v.name, broken, id, was)
			}
		}
		for pair, now := range direct {
			if now && !v.direct[pair] && !excused("") {
				t.Errorf("%s, %v: %s is direct", v.name, broken, pair)
			}
		}
	}
}

// damage breaks a file, and says how in the words of testenv.Excused.
func (v *victim) damage(t *testing.T, name string, random *rand.Rand) (how string) {
	t.Helper()
	var f files.File
	data := v.entries[name].Data
	switch random.IntN(6) {
	case 0:
		how = "absent"
		v.tree.Remove(name)
		return how
	case 1:
		how, f.Link = "unreadable", path.Base(name)
	case 2:
		how = "half"
		n := random.IntN(len(data) + 1)
		if n == 0 {
			how = "empty"
		}
		f.Data = data[:n]
	case 3:
		how, f.Data = "noise", []byte("\xff\x00 noise \n 0x")
	case 4:
		f.Link = []string{".", "..", "x", "user:[0]"}[random.IntN(4)]
		how = map[string]string{".": "directory", "..": "directory"}[f.Link]
		if how == "" {
			how = "absent" // there is no such file
		}
	case 5:
		how, f.Dir = "directory", true
	}
	v.put(t, name, f)
	return how
}

func (v *victim) put(t *testing.T, name string, f files.File) {
	t.Helper()
	if err := v.tree.Replace(name, f); err != nil {
		t.Fatal(err)
	}
}
