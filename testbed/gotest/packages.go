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
	"strings"
)

// Package is a Go package with tests for the guest.
type Package struct {
	Path    string // import path
	Dir     string
	Tests   []string // the matching top-level tests, in source order
	Machine string   // from a //testbed:machine comment; empty: the default
}

// Find lists the packages among patterns that have top-level tests whose
// names match re. root is the module's directory.
func Find(ctx context.Context, root string, patterns []string, re *regexp.Regexp) ([]Package, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "--"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
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
		for _, f := range append(l.TestGoFiles, l.XTestGoFiles...) {
			src, err := os.ReadFile(filepath.Join(l.Dir, f))
			if err != nil {
				return nil, err
			}
			if err := p.scan(string(src), re); err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(l.Dir, f), err)
			}
		}
		if len(p.Tests) > 0 {
			pkgs = append(pkgs, p)
		}
	}
}

var (
	testFunc         = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)
	machineDirective = regexp.MustCompile(`(?m)^//testbed:machine (\S+)$`)
)

// scan adds what one test file says.
func (p *Package) scan(src string, re *regexp.Regexp) error {
	for _, m := range testFunc.FindAllStringSubmatch(src, -1) {
		if re.MatchString(m[1]) {
			p.Tests = append(p.Tests, m[1])
		}
	}
	for _, m := range machineDirective.FindAllStringSubmatch(src, -1) {
		if p.Machine != "" && p.Machine != m[1] {
			return fmt.Errorf("//testbed:machine %s, but another file of the package wants %s", m[1], p.Machine)
		}
		p.Machine = m[1]
	}
	return nil
}

// Build builds the package's test binary at file.
func (p Package) Build(ctx context.Context, root, file string, flags []string) error {
	args := append([]string{"test", "-c", "-o", file}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, p.Path)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", p.Path, err, bytes.TrimSpace(out))
	}
	return nil
}
