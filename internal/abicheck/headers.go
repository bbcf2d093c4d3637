// SPDX-License-Identifier: Apache-2.0

package abicheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Headers are C headers to compare with.
type Headers struct {
	Files   []string // in the order in which they are included
	Flags   []string // for the compiler, such as -I
	Package string   // Debian's, which they come in
}

// Compare checks structs and numbers against the headers, by a program that
// prints what C makes of them.
func (h Headers) Compare(t testing.TB, structs []Struct, numbers []Number) {
	t.Helper()
	body, err := program(structs, numbers)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(h.Compile(t, body)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(string(out), structs, numbers); err != nil {
		t.Error(err)
	}
}

// Compile builds a program that includes the headers and then has body, which
// must compile; it returns the program's path. Where there is no compiler, or
// no such headers, the test ends there ([testenv.NoHeaders]). CC and CFLAGS are
// honoured.
func (h Headers) Compile(t testing.TB, body string) string {
	t.Helper()
	head, dir := h.head(), t.TempDir()
	if _, out, err := h.cc(t, dir, "probe", head+"int main(void) { return 0; }\n"); err != nil {
		testenv.NoHeaders(t, h.Package, "cannot include "+strings.Join(h.Files, ", ")+": "+err.Error()+": "+out)
	}
	program, out, err := h.cc(t, dir, "layout", head+body)
	if err != nil {
		t.Fatalf("%v: %s\n%s%s", err, out, head, body)
	}
	return program
}

// Have reports whether the headers, as the preprocessor leaves them, have a name:
// older ones may lack it. A macro leaves none.
func (h Headers) Have(t testing.TB, name string) bool {
	t.Helper()
	text, _, err := h.cc(t, t.TempDir(), "names", h.head(), "-E")
	if err != nil {
		return false // Compile says why
	}
	all, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(all)
}

func (h Headers) head() string {
	head := "#include <stddef.h>\n#include <stdio.h>\n"
	for _, f := range h.Files {
		head += "#include <" + f + ">\n"
	}
	return head
}

func (h Headers) cc(t testing.TB, dir, name, source string, flags ...string) (program, output string, err error) {
	t.Helper()
	program = filepath.Join(dir, name)
	if err := os.WriteFile(program+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	args := slices.Concat(strings.Fields(os.Getenv("CFLAGS")), h.Flags, flags, []string{"-o", program, program + ".c"})
	out, err := exec.Command(cc, args...).CombinedOutput()
	return program, string(out), err
}
