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
