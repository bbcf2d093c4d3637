// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

func TestLocate(t *testing.T) {
	script := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Run("status", func(t *testing.T) {
		for text, want := range map[string]struct {
			located
			words string
		}{
			"exit 0":                     {located{Found: true}, "found"},
			"exit 1":                     {located{}, "not found"},
			"echo in $2; echo more":      {located{Found: true, Says: "in 0000:03:00.0"}, "in 0000:03:00.0"},
			"echo nowhere in $2; exit 1": {located{Says: "nowhere in 0000:03:00.0"}, "nowhere in 0000:03:00.0"},
		} {
			got, err := locate(t.Context(), script("look", "#!/bin/sh\n"+text+"\n"), []byte{1, 2}, "0000:03:00.0")
			if err != nil || *got != want.located || got.words() != want.words {
				t.Errorf("%q: %+v, %v; want %+v, %q", text, got, err, want.located, want.words)
			}
			if row := (&Row{Located: got}); err == nil && (row.staged() != "") == want.Found {
				t.Errorf("%q: staged %q", text, row.staged())
			}
		}
	})
	t.Run("failure", func(t *testing.T) {
		for text, want := range map[string]string{
			"#!/bin/sh\nexit 3\n":                       " 0000:03:00.0 ended with exit status 3, where 0 means found and 1 not found\n",
			"#!/bin/sh\necho no such BAR >&2; exit 3\n": "and 1 not found: no such BAR\n",
			"\x7fELF":                  "errno:   ENOEXEC (8: exec format error)\n",
			"#!/no/such/interpreter\n": "errno:   ENOENT (2: no such file or directory)\n",
		} {
			file := script("look", text)
			_, err := locate(t.Context(), file, []byte{1, 2}, "0000:03:00.0")
			var told bytes.Buffer
			cli.PrintErrors(&told, app.Program, err)
			if cli.Status(err) != cli.ExitFailed || !strings.Contains(told.String(), want) || !strings.Contains(told.String(), file) {
				t.Errorf("%q: %q, want %q", text, &told, want)
			}
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := locate(ctx, script("look", "#!/bin/sh\n"), nil, ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if err := checkLocate(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) || cli.Status(err) != cli.ExitUsage {
		t.Errorf("no such program: %v", err)
	}
}
