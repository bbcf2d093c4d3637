// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/gotest"
	"github.com/gpurdma/gpurdma/testbed/suite"
)

// A test that is in no list could be renamed, or skip everywhere, unnoticed. One that
// a kernel cannot run is in the other kernels' lists.
func TestEveryTestIsRequired(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "testbed", "required", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	// What needs a kernel that checks itself: make kasan requires it.
	debugging, err := filepath.Glob(filepath.Join(root, "testbed", "required", "kasan", "*.txt"))
	if err != nil || len(debugging) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	files = append(files, debugging...)
	listed := map[string]bool{} // series, package and name
	for _, f := range files {
		list, err := suite.ReadRequired(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			listed[strings.TrimSuffix(filepath.Base(f), ".txt")+" "+q.Group+" "+q.Name] = true
		}
	}
	pkgs, err := gotest.Find(t.Context(), root, []string{"./..."}, regexp.MustCompile("^TestVM"), nil)
	if err != nil || len(pkgs) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, p := range pkgs {
		for _, test := range p.Tests {
			for _, m := range test.Machines {
				name := test.Name
				if len(test.Machines) > 1 {
					name = onMachine(test.Name, m, "")
				}
				found := false
				for _, f := range files {
					series := strings.TrimSuffix(filepath.Base(f), ".txt")
					found = found || test.RunsOn(series) && listed[series+" "+suite.Short(p.Path, modulePath)+" "+name]
				}
				if !found {
					t.Errorf("%s %s: no list under testbed/required has it", suite.Short(p.Path, modulePath), name)
				}
			}
		}
	}
}

// Each test in arm64's lists runs on arm64, on the machine that the list names.
func TestARM64ListNamesTests(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "testbed", "required", "arm64", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	pkgs, err := gotest.Find(t.Context(), root, []string{"./..."}, regexp.MustCompile("^TestVM"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		runs := map[string]bool{}
		for _, p := range pkgs {
			for _, test := range p.Tests {
				on := test.On("arm64")
				for _, m := range on {
					name := test.Name
					if len(on) > 1 {
						name = onMachine(test.Name, m, "")
					}
					if test.RunsOn(strings.TrimSuffix(filepath.Base(f), ".txt")) {
						runs[suite.Short(p.Path, modulePath)+" "+name] = true
					}
				}
			}
		}
		list, err := suite.ReadRequired(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			t.Errorf("%s is empty", f)
		}
		for _, q := range list {
			test, _, _ := strings.Cut(q.Name, "/")
			if !runs[q.Group+" "+test] {
				t.Errorf("%s:%d: %s %s does not run on arm64", f, q.Line, q.Group, q.Name)
			}
		}
	}
}
