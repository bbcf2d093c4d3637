// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/result"
)

func TestNext(t *testing.T) {
	pair := func(outcome string, counts bool) result.Pair {
		return result.Pair{GPU: "g", NIC: "n", Outcome: outcome, Counts: counts}
	}
	direct, staged := pair("direct", true), pair("staged", true)
	const why = "next: the changes above. Each link of a pair, and what it rests on"
	for name, c := range map[string]struct {
		copied bool
		run    result.Run
		want   string
	}{
		"no pair":        {false, result.Run{}, "next: p2pcheck looks for GPUs with memory of their own"},
		"outside":        {false, result.Run{Pairs: []result.Pair{pair("staged", false)}, Summary: result.Summary{Outside: 1}}, "next: p2pcheck looks for GPUs"},
		"direct":         {false, result.Run{Pairs: []result.Pair{direct}, Summary: result.Summary{Direct: 1}}, "next: prove it, as root:\n        p2pcheck --live\n"},
		"direct, a copy": {true, result.Run{Pairs: []result.Pair{direct}, Summary: result.Summary{Direct: 1}}, "next: prove it on the machine itself, as root:\n        p2pcheck --live\n"},
		"staged":         {false, result.Run{Pairs: []result.Pair{direct, staged}, Summary: result.Summary{Direct: 1, Staged: 1}}, why + ":\n        p2pcheck why g n\n"},
		"staged, a copy": {true, result.Run{Pairs: []result.Pair{staged}, Summary: result.Summary{Staged: 1}}, why + ", with the same input:\n        p2pcheck why g n\n"},
		"proven":         {false, result.Run{Pairs: []result.Pair{direct}, Summary: result.Summary{Direct: 1}, Live: &result.Live{Tried: 1}}, ""},
		"nothing tried":  {false, result.Run{Pairs: []result.Pair{direct}, Summary: result.Summary{Direct: 1}, Live: &result.Live{}}, "next: prove it"},
	} {
		var b strings.Builder
		next(&b, Style{Copy: c.copied}, c.run)
		if got := b.String(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The words of a head keep their colour, and its lines fit with and without.
func TestHead(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 40))
	for _, on := range []bool{false, true} {
		s := Style{}
		s.On, s.Mark = on, "mark"
		var b strings.Builder
		s.head(&b, "  ", "31", "worse  ", long)
		plain := strings.ReplaceAll(b.String(), s.Paint("31", "worse  "), "worse  ")
		for i, line := range strings.Split(strings.TrimSuffix(plain, "\n"), "\n") {
			start := "             word"
			if i == 0 {
				start = "  worse    word"
			}
			if !strings.HasPrefix(line, start) || len(line) > human.Columns {
				t.Errorf("%v: %q", on, line)
			}
		}
		if on != (b.String() != plain) {
			t.Errorf("%q", b.String())
		}
	}
}

// Names are those of the machine before the text is folded.
func TestFoldNames(t *testing.T) {
	s := Style{Names: func(text string) string { return strings.ReplaceAll(text, "/tmp/unpacked", "") }}
	var b strings.Builder
	s.fold(&b, "", "", strings.Repeat("x", human.Columns-8)+" /tmp/unpacked/sys")
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, " /sys\n") {
		t.Errorf("%q", got)
	}
}

// A matrix has as many columns beside the first as fit, and one in any case.
func TestFitting(t *testing.T) {
	for _, c := range []struct {
		wide      []int
		from, got int
	}{
		{[]int{9, 30, 30, 30}, 1, 3}, {[]int{7, 30, 30, 30}, 1, 4}, {[]int{9, 30, 30, 30}, 3, 4}, {[]int{9, 200, 30}, 1, 2}, {[]int{9}, 1, 1}, {[]int{200, 30, 30}, 1, 2},
	} {
		if got := fitting(c.wide, 1, c.from); got != c.got {
			t.Errorf("%v from %d: %d, want %d", c.wide, c.from, got, c.got)
		}
	}
}

// A command that reads the machine again has the flags of this run.
func TestCommandsReadTheSameMachine(t *testing.T) {
	s := Style{Flags: " --root copy"}
	for command, want := range map[string]string{
		"p2pcheck --kernel RELEASE": "p2pcheck --kernel RELEASE --root copy", "p2pcheck --config FILE": "p2pcheck --config FILE --root copy",
		"p2pcheck snapshot FILE": "p2pcheck snapshot FILE", "modprobe ib_uverbs": "modprobe ib_uverbs",
	} {
		var b strings.Builder
		if Remedy(&b, s, &result.Remedy{Change: "x", Command: command}, nil); !strings.HasSuffix(b.String(), "  "+want+"\n") {
			t.Errorf("%q", b.String())
		}
	}
}
