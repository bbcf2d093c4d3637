// SPDX-License-Identifier: Apache-2.0

package abicheck

import (
	"fmt"
	"strings"
	"testing"
)

// Twin pairs a structure that C code of ours declares with a header's.
type Twin struct {
	Ours, Theirs string
	Whole        bool // the whole structure is declared, not its beginning
	// Fields must lie at one place and have one size. "a=b" is called a in ours
	// and b in the header, and its size may differ.
	Fields string
}

// Assertions is a C program of conditions that the compiler checks. It need not
// run.
type Assertions struct {
	b strings.Builder
	n int
}

// Add adds a condition in C.
func (a *Assertions) Add(cond string) {
	a.n++
	fmt.Fprintf(&a.b, "_Static_assert(%s, %q);\n", cond, cond)
}

// AddTwins adds what makes the structures the same.
func (a *Assertions) AddTwins(list []Twin) {
	for _, s := range list {
		if s.Whole {
			a.Add(fmt.Sprintf("sizeof(struct %s) == sizeof(struct %s)", s.Ours, s.Theirs))
		}
		for _, f := range strings.Fields(s.Fields) {
			ours, theirs, renamed := strings.Cut(f, "=")
			if !renamed {
				theirs = ours
				a.Add(fmt.Sprintf("sizeof(((struct %s *)0)->%s) == sizeof(((struct %s *)0)->%s)", s.Ours, ours, s.Theirs, theirs))
			}
			a.Add(fmt.Sprintf("offsetof(struct %s, %s) == offsetof(struct %s, %s)", s.Ours, ours, s.Theirs, theirs))
		}
	}
}

// Hold compiles the program with the headers and with ours.
func (a *Assertions) Hold(t testing.TB, h Headers, ours string) {
	t.Helper()
	h.Compile(t, fmt.Sprintf("#include %q\n%sint main(void) { return 0; }\n", ours, &a.b))
	t.Logf("%d assertions hold", a.n)
}
