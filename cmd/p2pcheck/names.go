// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
)

// isCalled reports whether id is the check's ID or its family, in any case of letters.
func isCalled(c *check.Check, id string) bool {
	return strings.EqualFold(id, c.ID) || strings.EqualFold(id, c.Family())
}

// knownChecks are the given IDs and families in capitals. It fails for a name that is neither.
func knownChecks(ids []string) ([]string, error) {
	var out []string
	for _, id := range ids {
		switch {
		case strings.EqualFold(id, "all"):
			out = append(out, "all")
		case slices.ContainsFunc(checks.All(), func(c *check.Check) bool { return isCalled(c, id) }):
			out = append(out, strings.ToUpper(id))
		default:
			return nil, unknownCheck(id)
		}
	}
	return out, nil
}

// unknownCheck proposes checks with similar names, and names the families.
func unknownCheck(id string) error {
	there := fmt.Sprintf("The families of checks are %s, and `%s explain` prints all checks.", strings.Join(checkFamilies(), ", "), program)
	if id == "" {
		return errors.New("no check has an empty name. " + there)
	}
	text := fmt.Sprintf("no check is called %q", id)
	if near := nearest(strings.ToUpper(id), append(checkNames(), checkFamilies()...)); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	} else {
		text += "."
	}
	return errors.New(text + " " + there)
}

// suggested is the greatest number of names to propose.
const suggested = 3

// nearest are the names that contain the word, or else those that differ from it in few letters.
func nearest(word string, names []string) []string {
	var out []string
	best := 1 + len(word)/4 // more is another word
	for _, name := range names {
		if len(word) > 2 && strings.Contains(name, word) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		for _, name := range names {
			switch d := distance(word, name); {
			case d < best:
				best, out = d, []string{name}
			case d == best && !slices.Contains(out, name):
				out = append(out, name)
			}
		}
	}
	return out[:min(len(out), suggested)]
}

// distance is the number of letters to add, remove or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// checkFamilies are the families of all checks.
func checkFamilies() []string {
	var out []string
	for _, c := range checks.All() {
		if !slices.Contains(out, c.Family()) {
			out = append(out, c.Family())
		}
	}
	return out
}

// checkNames are the IDs of all checks.
func checkNames() []string {
	var out []string
	for _, c := range checks.All() {
		out = append(out, c.ID)
	}
	return out
}
