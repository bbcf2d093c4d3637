// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// pairOf is a machine of one GPU and one NIC, in memory, with much that is wrong.
type pairOf struct {
	tree  *files.Tree
	whole map[string]files.File
	names []string // of files and links
}

func brokenOne(f *testing.F) *pairOf {
	f.Helper()
	tree := testenv.Machines["small-hgx"]()
	var functions []string
	for line := range strings.Lines(tree.Functions) {
		if !strings.Contains(line, "0000:15:00.0") && !strings.Contains(line, "0000:16:00.0") {
			functions = append(functions, line)
		}
	}
	tree.Functions = strings.ReplaceAll(strings.Join(functions, ""), "acs=0x00", "acs=0x04")
	for name := range maps.Clone(tree.Files) {
		if strings.Contains(name, "0000:15:00.0") || strings.Contains(name, "0000:16:00.0") || strings.Contains(name, "uverbs1") || strings.Contains(name, "net/eth1") {
			delete(tree.Files, name)
		}
	}
	tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570\n"
	tree.Files["sys/module/nvidia/taint"] = "POE\n"
	tree.Files["proc/sys/kernel/numa_balancing"] = "1\n"
	taken, err := snapshot.Take(machine.Source{Root: tree.Write(f)})
	if err != nil {
		f.Fatal(err)
	}
	o := &pairOf{tree: files.NewTree(), whole: map[string]files.File{}}
	for name, file := range taken.All() {
		if err := o.tree.Replace(name, file); err != nil {
			f.Fatal(err)
		}
		if !file.Dir {
			o.whole[name] = file
		}
	}
	o.names = slices.Sorted(maps.Keys(o.whole))
	return o
}

// look is the worst of each check of some families, and whether the pair is direct. It is nil where the devices cannot be listed.
func (o *pairOf) look(families []string) (map[string]p2p.Result, bool) {
	dir, done := files.Mount(o.tree) // for one look
	defer done()
	m := machine.Source{Root: dir}.Open()
	s, err := inventory(m)
	if err != nil {
		return nil, false
	}
	for _, c := range All() {
		if !slices.Contains(families, c.Family()) {
			s.Skip = append(s.Skip, c.ID)
		}
	}
	found := map[string][]p2p.Result{}
	for _, f := range Run(m, s) {
		found[f.Check.ID] = append(found[f.Check.ID], f.Result)
	}
	worstOf := map[string]p2p.Result{}
	for id, all := range found {
		worstOf[id] = slices.MaxFunc(all, func(a, b p2p.Result) int { return badness[a] - badness[b] })
	}
	return worstOf, slices.ContainsFunc(s.Pairs, func(p p2p.Pair) bool { return p.Verdict.Outcome() == chain.Direct })
}

var badness = map[p2p.Result]int{p2p.ResultSkip: 0, p2p.ResultPass: 1, p2p.ResultWarn: 2, p2p.ResultUnknown: 3, p2p.ResultFail: 4}

// families that are looked at together.
var someFamilies = [][]string{
	{"KRN", "ENV", "P2P", "LIM"}, {"ISO", "PCIE"}, {"NV", "GPU", "AMD", "INTEL", "CTR", "K8S", "VM", "VF"}, {"NIC", "NET", "LIB"},
}

// damages are the states that a file is put into, in the words of testenv.Excused, and what is in its place.
var damages = []struct {
	how string
	in  func(name string, was files.File, cut int) (files.File, bool)
}{
	{"absent", func(string, files.File, int) (files.File, bool) { return files.File{}, false }},
	{"unreadable", func(name string, _ files.File, _ int) (files.File, bool) {
		return files.File{Link: path.Base(name)}, true
	}},
	{"empty", func(string, files.File, int) (files.File, bool) { return files.File{}, true }},
	{"half", func(_ string, was files.File, cut int) (files.File, bool) {
		return files.File{Data: was.Data[:min(cut, len(was.Data))]}, true
	}},
	{"noise", func(string, files.File, int) (files.File, bool) {
		return files.File{Data: []byte("\xff\x00 noise \n 0x")}, true
	}},
	{"directory", func(string, files.File, int) (files.File, bool) { return files.File{Dir: true}, true }},
	{"directory", func(string, files.File, int) (files.File, bool) { return files.File{Link: ".."}, true }},
	{"absent", func(string, files.File, int) (files.File, bool) { return files.File{Link: "user:[0]"}, true }},
}

// With up to three damaged files no check crashes, no check passes that did not pass before, and the pair is not direct.
// The input is the families that are looked at, and for each damage the file, what is done, and how much is left of it.
func FuzzBrokenMachine(f *testing.F) {
	o := brokenOne(f)
	whole := make([]map[string]p2p.Result, len(someFamilies))
	for i, families := range someFamilies {
		var direct bool
		if whole[i], direct = o.look(families); len(whole[i]) < 20 || direct {
			f.Fatalf("%v: %d checks, direct: %v", families, len(whole[i]), direct)
		}
	}
	for i := range o.names {
		for how := range damages {
			f.Add([]byte{byte(i % len(someFamilies)), byte(i >> 8), byte(i), byte(how), 7})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 5 {
			return
		}
		group := int(data[0]) % len(someFamilies)
		broken := map[string]string{}
		for data = data[1:]; len(data) >= 4 && len(broken) < 3; data = data[4:] {
			name := o.names[(int(data[0])<<8|int(data[1]))%len(o.names)]
			d := damages[int(data[2])%len(damages)]
			how := d.how
			if how == "half" && data[3] == 0 {
				how = "empty"
			}
			file, there := d.in(name, o.whole[name], int(data[3]))
			o.tree.Remove(name)
			if there {
				if err := o.tree.Replace(name, file); err != nil {
					t.Fatal(err)
				}
			}
			broken[name] = how
		}
		now, direct := o.look(someFamilies[group])
		for name := range broken {
			if err := o.tree.Replace(name, o.whole[name]); err != nil {
				t.Fatal(err)
			}
		}
		excused := func(check string) bool {
			for name, how := range broken {
				if testenv.Excused(check, name, how) {
					return true
				}
			}
			return false
		}
		for id, result := range now {
			if was := whole[group][id]; result == p2p.ResultPass && badness[was] > badness[result] && !excused(id) {
				t.Errorf("%v: %s was %v, and passes", broken, id, was)
			}
		}
		if direct && !excused("") {
			t.Errorf("%v: the pair is direct", broken)
		}
	})
}
