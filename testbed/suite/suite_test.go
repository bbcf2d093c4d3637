// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const mod = "example.org/m"

func summary() *Summary {
	s := &Summary{}
	s.Add(
		Result{Group: mod, Name: "TestVMRoot", State: Passed},
		Result{Group: mod + "/dmabuf", Name: "TestVMA", State: Failed, Parent: true},
		Result{Group: mod + "/dmabuf", Name: "TestVMA/x", State: Failed,
			Output: "=== RUN   TestVMA/x\nsaid by the way\n    a_test.go:7: EINVAL\n    a_test.go:9: a leak\n--- FAIL: TestVMA/x (0.00s)\n"},
		Result{Group: mod + "/dmabuf", Name: "TestVMA/y", State: Passed},
		Result{Group: mod + "/dmabuf", Name: "TestVMB", State: Failed, Parent: true}, // after its subtests
		Result{Group: mod + "/dmabuf", Name: "TestVMB/x", State: Passed},
		Result{Group: mod + "/dmabuf", Name: "TestVMC", State: Skipped,
			Output: "=== RUN   TestVMC\n    c_test.go:9: no udmabuf on 6.1\n--- SKIP: TestVMC (0.00s)\n"},
		Result{Group: "peers", Name: "rping", State: Unfinished, Output: "server started\nno completion\n"},
	)
	return s
}

func TestSummary(t *testing.T) {
	s := summary()
	if p, f, k := s.Count(); p != 3 || f != 3 || k != 1 {
		t.Errorf("got %d passed, %d failed, %d skipped; want 3, 3, 1", p, f, k)
	}
	s.Problems = []string{"after the last test: the kernel warned"}
	var b strings.Builder
	s.Write(&b, mod)
	want := `SKIP dmabuf TestVMC: c_test.go:9: no udmabuf on 6.1
FAIL dmabuf TestVMA/x: a_test.go:7: EINVAL
FAIL dmabuf TestVMB: no reason given
FAIL peers rping: no completion
FAIL after the last test: the kernel warned
3 passed, 4 failed, 1 skipped
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestCheck(t *testing.T) {
	s := summary()
	s.Check([]Required{
		{Group: ".", Name: "TestVMRoot"}, {Group: "dmabuf", Name: "TestVMA/y"},
		{Group: "dmabuf", Name: "TestVMA"}, // failed: counted already
		{Group: "dmabuf", Name: "TestVMC"}, {Group: "ibvfd", Name: "TestVMRoot"}, {Group: "peers", Name: "perftest"},
	}, mod)
	want := []string{
		"dmabuf TestVMC: required, but it was skipped",
		"ibvfd TestVMRoot: required, but it did not run",
		"peers perftest: required, but it did not run",
	}
	if !reflect.DeepEqual(s.Problems, want) {
		t.Errorf("got %q, want %q", s.Problems, want)
	}
	if _, failed, _ := s.Count(); failed != 6 {
		t.Errorf("%d failed, want the problems among them", failed)
	}
}

func TestRequired(t *testing.T) {
	got, err := parseRequired(strings.NewReader("# all\n\ndmabuf TestVMA\n peers\trping # the cm\n"), "f")
	want := []Required{{"dmabuf", "TestVMA", 3}, {"peers", "rping", 4}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"dmabuf\n": "f:1:", "a b c\n": "f:1:", "a b\nc d\na b\n": "f:3: a b is on line 1",
	} {
		if _, err := parseRequired(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The committed lists are well-formed and not empty.
func TestCommittedLists(t *testing.T) {
	files, err := filepath.Glob("../required/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	for _, f := range files {
		if list, err := ReadRequired(f); err != nil || len(list) == 0 {
			t.Errorf("%s: %d tests, %v", f, len(list), err)
		}
	}
}

func TestScripts(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("a.sh", "#!/bin/bash\n# SPDX\n# testbed: machine=pair timeout=5m\n# testbed: kernels=6.12 peer=server.sh\necho\n# testbed: modules=stock\n", 0o755)
	put("b.sh", "#!/bin/bash\n# testbed: modules=stock processors=1\n", 0o755)
	put("common.sh", "# testbed: nonsense=1\n", 0o644)
	got, err := Scripts(dir)
	want := []Script{
		{Name: "a", File: filepath.Join(dir, "a.sh"), Machine: "pair", Timeout: 5 * time.Minute, Kernels: []string{"6.12"}, Peer: "server.sh"},
		{Name: "b", File: filepath.Join(dir, "b.sh"), Stock: true, One: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if !got[0].RunsOn("6.12") || got[0].RunsOn("6.1") || got[0].RunsOn("7.3") || !got[1].RunsOn("6.1") {
		t.Error("RunsOn is wrong")
	}
	for _, bad := range []string{"timeout=soon", "modules=mine", "processors=3", "what=ever"} {
		put("c.sh", "# testbed: "+bad+"\n", 0o755)
		if _, err := Scripts(dir); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
	if none, err := Scripts(filepath.Join(dir, "nonexistent")); err != nil || len(none) != 0 {
		t.Errorf("no directory: %v, %v", none, err)
	}
}
