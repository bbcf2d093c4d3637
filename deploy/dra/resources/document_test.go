// SPDX-License-Identifier: Apache-2.0

package resources_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fleet is the document with the tables.
const fleet = "../../../docs/fleet.md"

// table is a table of the document, as it is now.
type table struct{ strings.Builder }

func newTable(head string) *table {
	b := new(table)
	b.WriteString(head)
	return b
}

// check compares a table with that of the document, which stands behind a mark. GPURDMA_DRA=write writes it there.
func (b *table) check(t *testing.T, mark string) {
	t.Helper()
	doc, err := os.ReadFile(fleet)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile("(?s)<!-- " + regexp.QuoteMeta(mark) + " -->\n(.*?)\n\n").FindSubmatchIndex(doc)
	switch {
	case at == nil:
		t.Fatalf("%s has no table behind “<!-- %s -->”", fleet, mark)
	case string(doc[at[2]:at[3]]) == b.String():
	case os.Getenv("GPURDMA_DRA") == "write":
		if err := os.WriteFile(fleet, slices.Concat(doc[:at[2]], []byte(b.String()), doc[at[3]:]), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table than the machines give now. `make dra-table` puts this one there:\n%s", fleet, b.String())
	}
}
