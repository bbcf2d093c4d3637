// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/redact"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// snapshotOf takes a snapshot of the machine below a directory.
func snapshotOf(t *testing.T, root string) (file string, s *snapshot.Snapshot) {
	t.Helper()
	s, err := snapshot.Take(machine.Source{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "machine.tar.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(f, version); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return file, s
}

// aToken is what a name can be made of.
var aToken = regexp.MustCompile(`[0-9A-Za-z_.\x{80}-\x{10ffff}-]+`)

// instead replaces in a text what a snapshot replaces.
func instead(replaced map[string]string, root, text string) string {
	text = strings.ReplaceAll(text, root, "")
	var long []string
	for was := range replaced {
		if len(was) >= 3 && aToken.FindString(was) != was || len(was) >= 8 {
			long = append(long, was)
		}
	}
	slices.SortFunc(long, func(a, b string) int { return len(b) - len(a) })
	for _, was := range long {
		text = strings.ReplaceAll(text, was, replaced[was])
	}
	return aToken.ReplaceAllStringFunc(text, func(token string) string {
		core := strings.Trim(token, ".-")
		if now := replaced[core]; now != "" && len(core) >= 3 {
			return strings.Replace(token, core, now, 1)
		}
		return token
	})
}

// canonical is a document with lists in an order that does not depend on names.
func canonical(v any, text func(string) string) any {
	switch v := v.(type) {
	case string:
		return text(v)
	case []any:
		out := make([]string, len(v))
		for i, x := range v {
			one, _ := json.Marshal(canonical(x, text)) // of what json.Unmarshal made
			out[i] = string(one)
		}
		slices.Sort(out)
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = canonical(x, text)
		}
		return out
	}
	return v
}

// sameAsMachine compares what check says of a machine and of its snapshot, but for the names that the snapshot replaces.
func sameAsMachine(t *testing.T, name, root, file string, s *snapshot.Snapshot) {
	t.Helper()
	replaced := s.Replaced()
	if text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(text)) {
			now, _ := redact.Group(strings.TrimSpace(line))
			if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && group != "/" {
				replaced["> /sys/fs/cgroup"+group+"/"] = "> /sys/fs/cgroup/GROUP/"
				replaced["/sys/fs/cgroup"+group+"/"] = "/sys/fs/cgroup" + strings.TrimPrefix(now, "0::") + "/"
			}
		}
	}
	replaced["user.slice"] = hostcheck.SnapshotGroup
	whole, copied := command("--json", "--root", root), command("--json", "--snapshot", file)
	parse := func(out string, text func(string) string) string {
		var d any
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatal(err)
		}
		all, err := json.MarshalIndent(canonical(d, text), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	want := parse(whole.out, func(text string) string { return instead(replaced, root, text) })
	got := parse(copied.out, func(text string) string { return text })
	if got != want || copied.status != whole.status {
		t.Errorf("%s: status %d of the machine, %d of its snapshot\n%s", name, whole.status, copied.status, differences(want, got))
	}
}

// differences are some lines that only one of two texts has.
func differences(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, line := range x {
		if !slices.Contains(y, line) && len(out) < 4 {
			out = append(out, "- "+line[:min(len(line), 3000)])
		}
	}
	for _, line := range y {
		if !slices.Contains(x, line) && len(out) < 8 {
			out = append(out, "+ "+line[:min(len(line), 3000)])
		}
	}
	return strings.Join(out, "\n")
}

// A snapshot of a machine is as good as the machine.
func TestSnapshotIsTheMachine(t *testing.T) {
	machines := map[string]testenv.Tree{}
	for name, machine := range testenv.Machines {
		machines[name] = machine()
	}
	if !testing.Short() {
		for _, c := range testenv.Corpus(t) {
			if c.Tree.Functions != "" { // or it is a processor only
				machines["corpus/"+c.Name] = c.Tree
			}
		}
	}
	for name, tree := range machines {
		root := tree.Write(t)
		file, s := snapshotOf(t, root)
		sameAsMachine(t, name, root, file, s)
		if strings.HasPrefix(name, "corpus/") {
			continue // the document has all that a text has
		}
		whole, copied := command("topo", "--root", root), command("topo", "--snapshot", file)
		if want := instead(s.Replaced(), root, whole.out); copied.out != want || copied.status != whole.status {
			t.Errorf("%s: status %d and %d\n%s", name, whole.status, copied.status, firstDifference(want, copied.out))
		}
	}
}
