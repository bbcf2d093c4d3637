// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// differences are some lines that only one of two texts has, from shortly before the place where they begin to differ.
func differences(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	only := func(in, other []string) (out []string) {
		for _, line := range in {
			if !slices.Contains(other, line) && len(out) < 4 {
				out = append(out, line)
			}
		}
		return out
	}
	was, now := only(x, y), only(y, x)
	var out []string
	show := func(sign, line string, from int) {
		from = max(0, from-60)
		out = append(out, sign+" …"+line[from:min(len(line), from+240)])
	}
	for i, line := range was {
		same := 0
		if i < len(now) {
			for same < min(len(line), len(now[i])) && line[same] == now[i][same] {
				same++
			}
			show("+", now[i], same)
		}
		show("-", line, same)
	}
	return strings.Join(out, "\n")
}

// A snapshot of a machine is as good as the machine.
func TestSnapshotIsTheMachine(t *testing.T) {
	testenv.Exhaustive(t)
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

// What --show prints is what the archive has, of each file.
func TestShowIsTheArchive(t *testing.T) {
	root, _ := rich(t)
	file, _ := snapshotOf(t, root)
	var d struct{ Result shownResult }
	r := command("snapshot", "--show", "--json", "--root", root)
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	shown := map[string]snapshot.Shown{}
	for _, f := range d.Result.Files {
		shown[f.Name] = f
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := snapshot.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	contents := 0
	for name, f := range tree.All() {
		s, there := shown["/"+name]
		switch {
		case !there:
			t.Errorf("/%s is not shown", name)
		case len(f.Data) > 0 && (s.Text == "" || s.Keeps == ""):
			t.Errorf("the contents of /%s are not shown: %q", name, f.Data)
		case f.Unreadable(name) != s.Unread, f.Link != "" && !s.Unread && s.Link != f.Link:
			t.Errorf("/%s: %+v", name, s)
		}
		if len(f.Data) > 0 {
			contents++
		}
	}
	if len(shown) != tree.Len() || contents < 100 {
		t.Errorf("%d files are shown, the archive has %d, %d with contents", len(shown), tree.Len(), contents)
	}
	text := command("snapshot", "--show", "--root", root)
	if !strings.Contains(text.out, "fallen off") && !strings.Contains(text.out, "Xid (PCI:0000:13:00): 31,") || text.status != 0 {
		t.Errorf("the log is not shown: %d %s", text.status, text.err)
	}
}

// A check does not pass for a snapshot that does not pass for the machine: not for a file that is no regular one, nor for one that a
// link leads up to.
func TestSnapshotOfOddFiles(t *testing.T) {
	odd := map[string]func(name string) error{
		"a pipe": func(name string) error { return unix.Mkfifo(name, 0o600) },
		"up":     func(name string) error { return os.Symlink(strings.Repeat("../", 40)+"aside", name) },
	}
	for what, make := range odd {
		for _, name := range []string{"proc/cmdline", "proc/self/environ", "proc/driver/nvidia/params", "proc/driver/nvidia/version", "proc/self/limits", "sys/module/nvidia/taint", "boot/config-7.2.12+deb13-amd64", "proc/cpuinfo"} {
			root := testenv.Machines["small-hgx"]().Write(t)
			at := filepath.Join(root, name)
			data, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(root, "aside"), data, 0o600), os.Remove(at), make(at)); err != nil {
				t.Fatal(err)
			}
			file, _ := snapshotOf(t, root)
			whole, _ := found(t, "--root", root)
			copied, _ := found(t, "--snapshot", file)
			for _, id := range copied["pass"] {
				if !slices.Contains(whole["pass"], id) {
					t.Errorf("%s in place of %s: %s passes for the snapshot", what, name, id)
				}
			}
		}
	}
}
