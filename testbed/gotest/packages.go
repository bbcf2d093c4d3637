// SPDX-License-Identifier: Apache-2.0

package gotest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/machine"
)

// Package is a Go package with tests for the guest.
type Package struct {
	Path  string // import path
	Dir   string
	Tests []Test // the matching top-level tests, in source order
}

// Test is a top-level test and where it wants to run.
type Test struct {
	Name     string
	Machines []string            // never empty; the empty name is the default machine
	Kernels  []string            // empty: all
	ByArch   map[string][]string // machines on an architecture, instead of Machines
}

// On are the machines of an architecture that the test runs on: those that it names for the
// architecture, or those of Machines that do not name another's processor.
func (t Test) On(arch string) []string {
	if named := t.ByArch[arch]; named != nil {
		return named
	}
	var own []string
	for _, name := range t.Machines {
		variations := strings.Split(name, "+")[1:]
		if !slices.ContainsFunc(variations, func(v string) bool { return machine.Foreign(arch, v) }) {
			own = append(own, name)
		}
	}
	return own
}

// RunsOn says whether the test is meant for a kernel series.
func (t Test) RunsOn(series string) bool {
	return kernel.Meant(t.Kernels, series)
}

// Find lists the packages among patterns that have top-level tests whose
// names match re. root is the module's directory; env is the go command's environment,
// which says what is built for, nil for this process's.
func Find(ctx context.Context, root string, patterns []string, re *regexp.Regexp, env []string) ([]Package, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "--"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, env
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(errb.String()))
	}
	var pkgs []Package
	d := json.NewDecoder(bytes.NewReader(out))
	for {
		var l struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p := Package{Path: l.ImportPath, Dir: l.Dir}
		var whole directives
		for _, f := range append(l.TestGoFiles, l.XTestGoFiles...) {
			src, err := os.ReadFile(filepath.Join(l.Dir, f))
			if err != nil {
				return nil, err
			}
			if err := p.scan(string(src), re, &whole); err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(l.Dir, f), err)
			}
		}
		p.fill(whole)
		if len(p.Tests) > 0 {
			pkgs = append(pkgs, p)
		}
	}
}

var (
	testFunc  = regexp.MustCompile(`^func (Test\w*)\(\w+ \*testing\.T\)`)
	directive = regexp.MustCompile(`^//testbed:([\w-]+)((?: \S+)+)$`)
)

// directives are the //testbed: comments of a test, or of a package.
type directives struct {
	machines, kernels []string
	byArch            map[string][]string
}

func (d *directives) set(key string, values []string) error {
	arch, forArch := strings.CutPrefix(key, "machine-")
	var before []string
	switch {
	case key == "machine":
		before, d.machines = d.machines, values
	case key == "kernel":
		before, d.kernels = d.kernels, values
	case forArch && slices.Contains(machine.Architectures(), arch):
		if d.byArch == nil {
			d.byArch = map[string][]string{}
		}
		before, d.byArch[arch] = d.byArch[arch], values
	default:
		return fmt.Errorf("//testbed:%s: there are //testbed:machine, //testbed:machine-ARCH with one of %s, and //testbed:kernel",
			key, strings.Join(machine.Architectures(), ", "))
	}
	if before != nil && !slices.Equal(before, values) {
		return fmt.Errorf("//testbed:%s %s, but another one here says %s", key, strings.Join(values, " "), strings.Join(before, " "))
	}
	return nil
}

// scan adds what one test file says. A directive in the comment of a function
// is that function's; any other is the package's.
func (p *Package) scan(src string, re *regexp.Regexp, whole *directives) error {
	var comment [][]string // directives since the last line that is no comment
	flush := func(to *directives) error {
		for _, m := range comment {
			if err := to.set(m[1], strings.Fields(m[2])); err != nil {
				return err
			}
		}
		comment = nil
		return nil
	}
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, "\n")
		if m := directive.FindStringSubmatch(line); m != nil {
			comment = append(comment, m)
			continue
		}
		if strings.HasPrefix(line, "//") {
			continue
		}
		m := testFunc.FindStringSubmatch(line)
		if m == nil {
			if err := flush(whole); err != nil {
				return err
			}
			continue
		}
		var own directives
		if err := flush(&own); err != nil {
			return fmt.Errorf("%s: %w", m[1], err)
		}
		if re.MatchString(m[1]) {
			p.Tests = append(p.Tests, Test{Name: m[1], Machines: own.machines, Kernels: own.kernels, ByArch: own.byArch})
		}
	}
	return flush(whole)
}

// fill gives the tests without directives of their own the package's.
func (p *Package) fill(whole directives) {
	for i := range p.Tests {
		t := &p.Tests[i]
		if t.Machines == nil {
			t.Machines = whole.machines
			if t.ByArch == nil {
				t.ByArch = whole.byArch
			}
		}
		if t.Machines == nil {
			t.Machines = []string{""}
		}
		if t.Kernels == nil {
			t.Kernels = whole.kernels
		}
	}
}

// Build builds the package's test binary at file, without what only debuggers read. env is as for Find.
func (p Package) Build(ctx context.Context, root, file string, flags, env []string) error {
	args := append([]string{"test", "-c", "-ldflags=-w", "-o", file}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, p.Path)...)
	cmd.Dir, cmd.Env = root, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", p.Path, err, bytes.TrimSpace(out))
	}
	return nil
}
