// SPDX-License-Identifier: Apache-2.0

package human

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// rows of a verification, of which BYTES is what matters most.
func verification() [][]string {
	return [][]string{
		{"MEMORY", "DRIVER", "NIC", "INODE", "RESULT", "BYTES", "LOOKED FOR AND"},
		{"drm:renderD130", "softgpu", "rxe0", "1", "ok", "peer-to-peer: 0000:03:00.0 BAR 2 (physical address), below a common switch", "found in BAR 2 of 0000:03:00.0 at 0x200000"},
		{"heap:system", "dma-heap", "rxe0", "5", "ok", "system memory (struct page)", ""},
	}
}

func TestTableFits(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, verification(), "INODE", "DRIVER"); err != nil {
		t.Fatal(err)
	}
	want := `MEMORY          NIC   RESULT  BYTES                                         LOOKED FOR AND
drm:renderD130  rxe0  ok      peer-to-peer: 0000:03:00.0 BAR 2 (physical    found in BAR 2 of
                              address), below a common switch               0000:03:00.0 at 0x200000
heap:system     rxe0  ok      system memory (struct page)                   -
not shown: INODE, DRIVER (--wide shows all columns)
`
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
}

// Where one of two cells has to be broken, the left one stays whole.
func TestTableBreaksTheRightCell(t *testing.T) {
	rows := [][]string{
		{"MEMORY", "NIC", "VERIFIED", "RESULT", "BYTES", "LOOKED FOR AND"},
		{"drm:0000:03:00.0", "rxe1", "16.0 MiB", "ok", "system memory (struct page)", "found nowhere in 65536 KiB of BARs"},
	}
	var b strings.Builder
	if err := Table(&b, rows); err != nil || !strings.Contains(b.String(), " system memory (struct page)  found nowhere in 65536 KiB of\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Columns that are joined by commas go together, though fewer would do.
func TestTableGroups(t *testing.T) {
	long := strings.Repeat("x", 90)
	var b strings.Builder
	if err := Table(&b, [][]string{{"A", "B", "C"}, {"aaaaaa", long, "cc"}}, "A,C"); err != nil || b.String() != "B\n"+long+"\nnot shown: A, C (--wide shows all columns)\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// With --wide a table has all columns, and each row is one line.
func TestTableWide(t *testing.T) {
	var b strings.Builder
	if err := Table(Wide{&b}, verification(), "INODE", "DRIVER"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 3 || !strings.Contains(b.String(), "INODE") || !strings.Contains(b.String(), "peer-to-peer: 0000:03:00.0 BAR 2 (physical address), below a common switch  found in BAR 2 of") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

// A table that fits keeps the columns that it could spare.
func TestTableSparesNothing(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"A", "B"}, {"1", "2"}}, "A"); err != nil || b.String() != "A  B\n1  2\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// No word is lost, whatever the table has in it. A line that is too wide has no cell that could be folded
// further.
func TestTableKeepsEveryWord(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	word := func() string { return strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(30)) }
	for range 2000 {
		rows := make([][]string, 1+r.IntN(6))
		columns, words := 1+r.IntN(9), 0
		for i := range rows {
			for range columns {
				text := word()
				for i > 0 && r.IntN(4) > 0 {
					text += " " + word()
				}
				words += len(strings.Fields(text))
				rows[i] = append(rows[i], text)
			}
		}
		var b strings.Builder
		if err := Table(&b, rows); err != nil {
			t.Fatal(err)
		}
		if got := len(strings.Fields(b.String())); got != words {
			t.Fatalf("%d words of %d in\n%s", got, words, b.String())
		}
		least := gap * (columns - 1)
		for c := range columns {
			most := utf8.RuneCountInString(rows[0][c])
			widest := most
			for _, row := range rows[1:] {
				widest = max(widest, utf8.RuneCountInString(row[c]))
				for w := range strings.FieldsSeq(row[c]) {
					most = max(most, utf8.RuneCountInString(w))
				}
			}
			least += max(most, min(narrowest, widest))
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(Columns, least) {
				t.Fatalf("a line of %d columns, where %d would do:\n%s", n, least, b.String())
			}
		}
	}
}

func TestLine(t *testing.T) {
	text := strings.Repeat("word ", 30) + "end"
	var narrow, wide strings.Builder
	if err := Line(&narrow, text, "a: ", "   "); err != nil {
		t.Fatal(err)
	}
	if err := Line(Wide{&wide}, text, "a: ", "   "); err != nil {
		t.Fatal(err)
	}
	if narrow.String() != Fold(text, "a: ", "   ")+"\n" || strings.Count(narrow.String(), "\n") != 2 {
		t.Errorf("narrow:\n%s", narrow.String())
	}
	if wide.String() != "a: "+text+"\n" {
		t.Errorf("wide:\n%s", wide.String())
	}
}
