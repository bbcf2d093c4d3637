// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// If the document cannot be written, the error that it would have is printed on stderr.
func TestDocumentThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, lost := range []error{nil, &cli.Exit{What: "job", Code: 7}} {
		var said strings.Builder
		a := &App{Stdout: full, Stderr: &said, Progress: &cli.Progress{}, JSON: true, Lines: true}
		status := a.finish("trace", nothing{}, lost)
		want, words := cli.ExitFailed, "no space left on device"
		if lost != nil {
			want, words = 7, "job ended with exit status 7"
		}
		if status != want || !strings.Contains(said.String(), words) {
			t.Errorf("%v: exit status %d, said %q", lost, status, said.String())
		}
	}
}

// nothing is a result that says nothing.
type nothing struct{}

func (nothing) Text(io.Writer) error { return nil }

// table is a result with a table that is wider than a screen.
type table struct{}

func (table) Text(w io.Writer) error {
	return Table(w, [][]string{{"NAME", "KEY", "BYTES"}, {"rxe0", strings.Repeat("7", 80), "system memory"}}, [][2]string{{"rxe0", strings.Repeat("note ", 30)}}, "", "KEY")
}

// Without --wide a table leaves out columns and names them; with it the table has all, and no line is folded.
func TestWide(t *testing.T) {
	for _, wide := range []bool{false, true} {
		var out strings.Builder
		a := &App{Stdout: &out, Stderr: io.Discard, Progress: &cli.Progress{}, Wide: wide}
		if status := a.finish("verify", table{}, nil); status != cli.ExitOK {
			t.Fatal(status)
		}
		lines := strings.Count(out.String(), "\n")
		if strings.Contains(out.String(), "777") != wide || strings.Contains(out.String(), "not shown: KEY (--wide") == wide || !strings.Contains(out.String(), "system memory") || (lines == 3) != wide {
			t.Errorf("wide %v, %d lines:\n%s", wide, lines, out.String())
		}
	}
}
