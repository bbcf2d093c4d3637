// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/suite"
)

// tally is what a run on a series counted, for the end of `make test`, where testbed/tally.sh collects those of all
// series.
type tally struct {
	series, title           string
	passed, failed, skipped int
}

// write leaves the counts, and before them a line for each failure, for each reason of skipped tests, and for each
// package of which tests were left out.
func (c tally) write(t layout.Tree, failures []string, skipped map[string][]string, leftOut []suite.Required) error {
	dir := filepath.Join(t.Cache(), c.series)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tally"), []byte(c.text(failures, skipped, leftOut)), 0o644)
}

func (c tally) text(failures []string, skipped map[string][]string, leftOut []suite.Required) string {
	var text strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&text, "FAIL %s: %s\n", c.series, f)
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(&text, "SKIP %s: %s: %s\n", c.series, reason, strings.Join(wholeTests(skipped[reason]), ", "))
	}
	left := map[string][]string{}
	for _, q := range leftOut {
		left[q.Group] = append(left[q.Group], q.Name)
	}
	for _, group := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(&text, "LEFT %s: %s: %s\n", c.series, suite.Short(group, modulePath), strings.Join(wholeTests(left[group]), ", "))
	}
	fmt.Fprintf(&text, "%s: %d passed, %d failed, %d skipped\n", c.title, c.passed, c.failed, c.skipped)
	return text.String()
}

// wholeTests are the names of tests in order, each once, without those of subtests.
func wholeTests(names []string) []string {
	var whole []string
	for _, name := range names {
		group, test, _ := strings.Cut(" "+name, " Test")
		test, _, _ = strings.Cut(test, "/")
		if test != "" {
			test = " Test" + test
		}
		whole = append(whole, strings.TrimSpace(group+test))
	}
	slices.Sort(whole)
	return slices.Compact(whole)
}

// reportUntested says that none of a series' tests ran, and how many that are.
func reportUntested(series string, why error) error {
	tree, err := findTree()
	if err != nil {
		return err
	}
	list, err := requiredOn(tree, series)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Linux %s, NOT TESTED", series)
	fmt.Printf("\n%s: %v\n0 passed, 0 failed, %d skipped\n", title, why, len(list))
	return tally{series, title, 0, 0, len(list)}.write(tree, nil, map[string][]string{fmt.Sprint(why): {"all tests"}}, nil)
}
