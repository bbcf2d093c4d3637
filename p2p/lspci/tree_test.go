// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
)

// ways are a tree's bridges and root buses, in lines.
func (tree *Tree) ways() string {
	var lines []string
	for b, bridge := range tree.above {
		lines = append(lines, fmt.Sprintf("%04x:%02x below %v", b.domain, b.number, bridge))
	}
	for b := range tree.roots {
		lines = append(lines, fmt.Sprintf("%04x:%02x", b.domain, b.number))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ") + fmt.Sprintf("; %d functions", len(tree.functions))
}

// The forms of a tree: ls-tree.c of pciutils.
func TestTrees(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"one bus", "-[0000:00]-+-00.0\n           \\-01.0\n", "0000:00; 2 functions"},
		{"one function", "-[0000:00]---00.0  Intel Corporation Device 0d57\n", "0000:00; 1 functions"},
		{"a bridge", "-[0000:00]-+-00.0\n           \\-01.0-[01]----00.0\n", "0000:00, 0000:01 below 0000:00:01.0; 3 functions"},
		{"a bridge with nothing below it", "-[0000:00]-+-01.0-[01]--\n           \\-02.0-[02]----00.0\n", "0000:00, 0000:01 below 0000:00:01.0, 0000:02 below 0000:00:02.0; 3 functions"},
		{"a bridge that is not set up", "-[0000:00]-+-1c.0--\n           \\-02.0-[02]----00.0\n", "0000:00, 0000:02 below 0000:00:02.0; 3 functions"},
		{"several functions below a bridge", "-[0000:00]-+-01.1-[01]--+-00.0  Name - with [brackets]\n           |            \\-00.1\n           \\-02.0\n", "0000:00, 0000:01 below 0000:00:01.1; 4 functions"},
		{"two root buses", "-+-[0000:80]-+-00.0\n |           \\-01.0-[81]----00.0\n \\-[0000:00]---00.0\n", "0000:00, 0000:80, 0000:81 below 0000:80:01.0; 4 functions"},
		{"buses of virtual functions", "-[0000:00]---01.1-[01-02]--+-[0000:01]-+-00.0\n                           |           \\-1f.6\n                           \\-[0000:02]---00.0\n", "0000:00, 0000:01 below 0000:00:01.1, 0000:02 below 0000:00:01.1; 4 functions"},
		{"behind VMD", "-+-[10000:e0]---01.0-[e1]----00.0\n \\-[0000:00]---0e.0\n", "0000:00, 10000:e0, 10000:e1 below 10000:e0:01.0; 3 functions"},
		{"carriage returns", "-[0000:00]-+-00.0\r\n           \\-01.0-[01]----00.0\r\n", "0000:00, 0000:01 below 0000:00:01.0; 3 functions"},
		{"a prompt", "root@node:~# lspci -tv\n-[0000:00]---00.0\n", "0000:00; 1 functions"},
	} {
		tree, err := ParseTree(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := tree.ways(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRefusedTrees(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no line begins a tree"},
		{"hello\n", "no line begins a tree"},
		{"           \\-01.0\n", "line 1 has a branch in column 12"},
		{"-[0000:00]-+-00.0\n      \\-01.0\n", "line 2 has a branch in column 7"},
		{"-00.0\n", "where a function or a bus was expected"},
		{"-[0000:00]-+-00.0\n           +-00.0\n", "0000:00:00.0, which is there twice"},
		{"-[0000:00]---01.0-[00]----00.0\n", "bus 00 below 0000:00:01.0, which cannot be"},
		{"-[0000:05]---01.0-[03]----00.0\n", "bus 03 below 0000:05:01.0, which cannot be"},
		{"-[0000:00]-+-01.0-[01]--\n           \\-02.0-[01]--\n", "bus 01 below 0000:00:02.0, which cannot be"},
		{"-[0000:00]---" + strings.Repeat("00.0-[01]----", 1) + "zz\n", `"zz"`},
	} {
		if _, err := ParseTree(strings.NewReader(c.text)); !errors.Is(err, ErrFormat) || !strings.Contains(fmt.Sprint(err), c.want) || !strings.Contains(fmt.Sprint(err), TreeCommand) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// A tree beside a whole text changes nothing, and beside one without the lines of
// bridges it says where the functions are.
func TestTreeFillsIn(t *testing.T) {
	text, tree := fixture(t, "dgx.txt"), fixture(t, "dgx-tree.txt")
	alone := machineOf(t, text, "")
	if both := machineOf(t, text, tree); !maps.EqualFunc(alone.Files, both.Files, same) {
		t.Error("the tree of the same machine changes it")
	}
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\tBus: ") {
			lines = append(lines, line)
		}
	}
	without := strings.Join(lines, "")
	gpu, nic := addr(t, "0000:9b:00.0"), addr(t, "0000:9a:00.0")
	for _, c := range []struct{ text, tree, letters, why string }{
		{without, "", "", "a bridge or root bus that the text does not have"},
		{without, tree, "PIX", "below the bridge 0000:98:00.0, 4 steps"},
		{fixture(t, "terse.txt"), tree, "", ""},
	} {
		m := machineOf(t, c.text, c.tree)
		read := machine.Open(write(t, m))
		if c.why == "" {
			f, err := read.Function(addr(t, "0000:19:00.0"))
			if err != nil || len(f.Upstream) != 3 || f.ACSErr == nil {
				t.Errorf("%+v, %v", f, err)
			}
			continue
		}
		if got := read.Letters(gpu, nic).NCCL; got != c.letters {
			t.Errorf("with a tree: %v: %q, want %q", c.tree != "", got, c.letters)
		}
		if d := p2pdma.Decide(read, gpu, &nic); !strings.Contains(d.String(), c.why) || d.Type != p2pdma.MapUnknown {
			t.Errorf("with a tree: %v: %v", c.tree != "", d)
		}
	}
	// A guest's functions on a root bus of their own.
	guest := machine.Open(write(t, machineOf(t, fixture(t, "guest.txt"), fixture(t, "guest-tree.txt"))))
	if got := guest.Letters(addr(t, "0000:10:1c.0"), addr(t, "0000:10:1b.0")).NCCL; got != "PHB" {
		t.Errorf("%q, want PHB", got)
	}
}

// A tree of another machine is found out where the two say different things.
func TestTreeOfAnotherMachine(t *testing.T) {
	text, tree := fixture(t, "dgx.txt"), fixture(t, "dgx-tree.txt")
	for _, c := range []struct{ old, new, want string }{
		{"+-00.0-[18]", "+-04.0-[18]", "0000:17:04.0 leads to bus 0000:18, and by the other text it is 0000:17:00.0"},
		{"+-[0000:15]-+-00.0", "+-[0000:16]-+-00.0", "no bridge leads to bus 0000:16, and by the other text it is 0000:15:01.0"},
	} {
		changed := strings.Replace(tree, c.old, c.new, 1)
		if c.old == "+-[0000:15]-+-00.0" {
			changed = "-[0000:16]---00.0\n"
		}
		if _, err := tryMachine(text, changed); !errors.Is(err, ErrFormat) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
	// Functions that the other text lacks: it is a part of one.
	m := machineOf(t, without(t, text, "0000:1a:00.0"), tree)
	if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, "1 function of the tree is not in the other text") {
		t.Error(notes)
	}
}

// Two bridges that lead to one bus: which of them is above it is not known.
func TestTwoBridgesToOneBus(t *testing.T) {
	text := fixture(t, "dgx.txt")
	text = strings.Replace(text, "primary=17, secondary=19, subordinate=19", "primary=17, secondary=18, subordinate=18", 1)
	m := machineOf(t, text, "")
	if dir := m.dirOf("0000:18:00.0"); !strings.Contains(dir, unplaced) {
		t.Error(dir)
	}
	nic := addr(t, "0000:18:00.0")
	if d := p2pdma.Decide(machine.Open(write(t, m)), addr(t, "0000:19:00.0"), &nic); d.Type != p2pdma.MapUnknown {
		t.Error(d)
	}
}

func TestNotes(t *testing.T) {
	const always = "lspci prints no kernel"
	for _, c := range []struct {
		text, tree string
		want       []string
	}{
		{fixture(t, "dgx.txt"), "", []string{"2 network functions with an RDMA driver stand in for one"}},
		{fixture(t, "unprivileged.txt"), "", []string{"1 network function", "8 functions have “<access denied>”"}},
		{fixture(t, "names.txt"), "", []string{"1 network function", "Addresses have no domain: 0000 is assumed", "8 functions have no numbers of vendor and device"}},
		{fixture(t, "brief.txt"), "", []string{"1 network function", "8 functions have no registers in the text"}},
		{fixture(t, "terse.txt"), "", []string{"1 network function", "8 functions have no registers in the text", "what leads to bus 0000:16, bus 0000:17, bus 0000:18 and 1 more"}},
		{fixture(t, "guest.txt"), "", []string{"1 network function", "what leads to bus 0000:10"}},
		{fixture(t, "guest.txt"), fixture(t, "guest-tree.txt"), []string{"1 network function"}},
		{fixture(t, "domains.txt")[:9000], "", []string{"1 network function", "The text ends inside a line or a function"}},
		{strings.Replace(fixture(t, "domains.txt"), "\tLatency: 0", "...\n\tLatency: 0", 1), "", []string{"1 network function", "1 function has foreign, missing or repeated lines"}},
		{"00:00.0 Contraption: Some Company\n01:00.0 Host bridge: Another\n", "", []string{"no domain", "2 functions have no numbers", "1 function has a class that is not known", "2 functions have no registers"}},
	} {
		notes := machineOf(t, c.text, c.tree).Notes
		want := append([]string{always}, c.want...)
		if len(notes) != len(want) {
			t.Errorf("%q, want %q", notes, want)
			continue
		}
		for i, note := range notes {
			if !strings.Contains(note, want[i]) {
				t.Errorf("%q, want %q", note, want[i])
			}
		}
	}
}
