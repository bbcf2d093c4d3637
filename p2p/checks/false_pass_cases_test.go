// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// sampled is one of how many of the runs that need the whole machine read anew.
const sampled = 2003

// ways is one of how many manglings each case tries on a file that only its check
// reads; the next case tries others.
const ways = 5

// A check that does not pass on a machine neither passes nor is skipped if one of its files is mangled.
// Files that only this check reads are mangled in some ways in this case, and in other ways in the next
// one. Of the files that list the devices, which all checks read, each case takes another sample: without
// a device a check can be skipped.
func TestNoCasePassesMangled(t *testing.T) {
	testenv.Exhaustive(t)
	n := 0
	cases := checkCases()
	for _, one := range All() { // in their order: the sample is the same each time
		id := one.ID
		for i, c := range cases[id] {
			if c.want == pass || c.want == skip {
				continue
			}
			root := written(t, machineNamed(t, c.on), c.edits)
			var m *machine.Machine
			var s check.Subject
			var unread error
			open := func() { m, s, unread = only(root, id, c.live) }
			shared := reads(t, root, open)
			unread = nil // by the case itself
			own := without(reads(t, root, func() { Run(m, s) }), shared)
			judge := func(name, how string, skips bool) {
				found := Run(m, s)
				for _, f := range found {
					sane(t, f)
				}
				if r := worst(found); (r == pass || r == skip && skips) && unread == nil {
					if testenv.Excused(id, name, how) {
						return
					}
					t.Errorf("%s/%d_%v, %s in %s: %v", id, i, c.want, how, strings.TrimPrefix(name, root), said(found))
				}
			}
			times := map[string]int{}
			for j, name := range own {
				// Of alike devices two are enough, and what all is below of is TestCopies'.
				if times[filepath.Base(name)]++; times[filepath.Base(name)] > 2 || strings.Count(strings.TrimPrefix(name, root), "/") < 3 && strings.HasPrefix(name, root+"/sys") {
					continue
				}
				for k, how := range manglings {
					if (i+j+k)%ways == 0 {
						mangled(t, root, name, how, func() { judge(name, how, true) })
					}
				}
			}
			for _, name := range shared {
				for _, how := range manglings {
					if n++; n%sampled == 8 {
						mangled(t, root, name, how, func() { open(); judge(name, how, false) })
					}
				}
			}
		}
	}
}

// written is a machine that was changed, in files.
func written(t *testing.T, tree testenv.Tree, edits []edit) string {
	t.Helper()
	var later []func(*testing.T, string)
	for _, e := range edits {
		if f := e(&tree); f != nil {
			later = append(later, f)
		}
	}
	root := tree.Write(t)
	for _, f := range later {
		f(t, root)
	}
	return root
}

// only is all that a machine has, for one check.
func only(root, id string, live check.Live) (*machine.Machine, check.Subject, error) {
	m := machine.Open(root)
	s, err := inventory(m)
	s.Live = live
	for _, c := range All() {
		if c.ID != id {
			s.Skip = append(s.Skip, c.ID)
		}
	}
	return m, s, err
}
