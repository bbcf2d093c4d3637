// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/suite"
)

// `make test` runs each test that it leaves out on one kernel on another kernel or another
// machine, except those that VM_LONG names. Both name only tests that are in a list.
func TestLeftOutRunsElsewhere(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	makefile, err := os.ReadFile(filepath.Join(root, "mk", "test.mk"))
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` := (.*)$`).FindSubmatch(makefile)
		if m == nil {
			t.Fatalf("mk/test.mk does not set %s", name)
		}
		return strings.ReplaceAll(string(m[1]), "$$", "$")
	}
	long := variable("VM_LONG")
	isLong := regexp.MustCompile("^(" + long + ")")
	runs := map[string]bool{}     // by package and name, on any kernel and machine
	left := map[string]bool{}     // the same
	listed := map[string]string{} // all tests of a kernel's list, a line each
	all := seriesOfTest(t, root)
	for _, series := range all {
		isLeft := regexp.MustCompile("^(" + variable("VM_LEFT_"+series) + ")")
		list, err := suite.ReadRequired(filepath.Join(root, "testbed", "required", series+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			name := q.Group + " " + q.Name
			listed[series] += name + "\n"
			test, _, _ := strings.Cut(name, "@")
			switch {
			case strings.Contains(q.Name, "/"), isLong.MatchString(name):
			case isLeft.MatchString(name):
				left[test] = true
			default:
				runs[test] = true
			}
		}
		for _, one := range alternatives(variable("VM_LEFT_" + series)) {
			if !regexp.MustCompile("(?m)^" + one).MatchString(listed[series]) {
				t.Errorf("VM_LEFT_%s has %q, which the list of %s does not", series, one, series)
			}
		}
	}
	for test := range left {
		if !runs[test] {
			t.Errorf("%s is left out, and runs nowhere else", test)
		}
	}
	for _, one := range alternatives(long) {
		if !slices.ContainsFunc(all, func(series string) bool { return regexp.MustCompile("(?m)^" + one).MatchString(listed[series]) }) {
			t.Errorf("VM_LONG has %q, which no list has", one)
		}
	}
}

// seriesOfTest are the kernels of `make test`.
func seriesOfTest(t *testing.T, root string) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^KERNELS \?= (.+)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile does not set KERNELS")
	}
	return strings.Fields(string(m[1]))
}

// alternatives are what the regular expression has between bars: "p TestVM(A|B)\b" is two.
func alternatives(re string) (out []string) {
	for _, one := range regexp.MustCompile(`[^|()]*(\([^()]*\))?[^|()]*(\([^()]*\))?`).FindAllString(re, -1) {
		before, rest, several := strings.Cut(one, "(")
		names, after, _ := strings.Cut(rest, ")")
		if !several {
			names = ""
		}
		for name := range strings.SplitSeq(names, "|") {
			if one != "" {
				out = append(out, before+name+after)
			}
		}
	}
	return out
}
