// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/internal/human"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Compare compares what is printed with a file.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Result is what a command has found.
type Result interface {
	Text(w io.Writer) error
}

// Tables compares what each result prints with the file of its name. No line may be wider than
// [human.Columns].
func Tables(t *testing.T, results map[string]Result) {
	t.Helper()
	for name, r := range results {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := r.Text(&b); err != nil {
				t.Fatal(err)
			}
			Compare(t, name, b.String())
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > human.Columns {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}
