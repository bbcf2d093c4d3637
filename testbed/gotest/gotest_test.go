// SPDX-License-Identifier: Apache-2.0

package gotest

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/testbed/suite"
)

func TestRedirect(t *testing.T) {
	args := []string{
		"-test.v=test2json", "-test.coverprofile=/tmp/go-build1/b001/_cover_.out", "-test.gocoverdir=/tmp/go-build1/b001/gocoverdir",
		"-test.cpuprofile=cpu.out", "-test.run=^TestVM$", "-test.trace=", "-flag.of.the.test=/x", "coverprofile=/y",
	}
	got, outs := Redirect(args, "/src/pkg", "/results")
	wantArgs := []string{
		"-test.v=test2json", "-test.coverprofile=/results/out0-_cover_.out", "-test.gocoverdir=/results/out1-gocoverdir",
		"-test.cpuprofile=/results/out2-cpu.out", "-test.run=^TestVM$", "-test.trace=", "-flag.of.the.test=/x", "coverprofile=/y",
	}
	wantOuts := []Output{
		{Guest: "out0-_cover_.out", Host: "/tmp/go-build1/b001/_cover_.out"},
		{Guest: "out1-gocoverdir", Host: "/tmp/go-build1/b001/gocoverdir", Dir: true},
		{Guest: "out2-cpu.out", Host: "/src/pkg/cpu.out"},
	}
	if !reflect.DeepEqual(got, wantArgs) {
		t.Errorf("arguments\n%q, want\n%q", got, wantArgs)
	}
	if !reflect.DeepEqual(outs, wantOuts) {
		t.Errorf("outputs\n%+v, want\n%+v", outs, wantOuts)
	}
	if args[1] != "-test.coverprofile=/tmp/go-build1/b001/_cover_.out" {
		t.Error("the caller's arguments changed")
	}

	_, outs = Redirect([]string{"-test.outputdir=/out", "-test.memprofile=mem.out"}, "/src/pkg", "/results")
	want := []Output{{Guest: "out0-out", Host: "/out", Dir: true}, {Guest: "out1-mem.out", Host: "/out/mem.out"}}
	if !reflect.DeepEqual(outs, want) {
		t.Errorf("with -test.outputdir: %+v, want %+v", outs, want)
	}
}

func TestTimeout(t *testing.T) {
	if d := Timeout([]string{"-test.v", "-test.timeout=10m0s"}); d != 10*time.Minute {
		t.Errorf("got %v", d)
	}
	if d := Timeout([]string{"-test.timeoutx=1s", "x"}); d != 0 {
		t.Errorf("got %v, want none", d)
	}
}

func TestScan(t *testing.T) {
	p, re := Package{}, regexp.MustCompile("^TestVM")
	var whole directives
	for _, src := range []string{
		"package x\n\n//testbed:machine two-nics\n\nfunc TestVMA(t *testing.T) {}\n\nfunc TestB(t *testing.T) {}\n" +
			"func TestVMStockC(t *testing.T) {}\n// func TestVMNo(t *testing.T)\nfunc TestVMHelper(t *testing.T, n int) {}\nfunc TestMain(m *testing.M) {}\n",
		"package x\n// TestVMD is about buses.\n//\n//testbed:machine switch fabric+EPYC\n//testbed:kernel 7.2\nfunc TestVMD(t *testing.T) {\n}\n",
	} {
		if err := p.scan(src, re, &whole); err != nil {
			t.Fatal(err)
		}
	}
	p.fill(whole)
	want := []Test{
		{Name: "TestVMA", Machines: []string{"two-nics"}},
		{Name: "TestVMStockC", Machines: []string{"two-nics"}},
		{Name: "TestVMD", Machines: []string{"switch", "fabric+EPYC"}, Kernels: []string{"7.2"}},
	}
	if !reflect.DeepEqual(p.Tests, want) {
		t.Errorf("got %+v, want %+v", p.Tests, want)
	}
	if d := p.Tests[2]; !d.RunsOn("7.2") || !d.RunsOn("7.3") || d.RunsOn("6.1") || !p.Tests[0].RunsOn("6.1") {
		t.Error("RunsOn is wrong")
	}
	for src, want := range map[string]string{
		"//testbed:machine pair\n":                                                  "two-nics",
		"//testbed:mashine pair\nfunc TestVMX(t *testing.T) {}\n":                   "TestVMX: //testbed:mashine",
		"//testbed:machine a\n//testbed:machine b\nfunc TestVMX(t *testing.T) {}\n": "TestVMX: //testbed:machine b",
	} {
		if err := p.scan(src, re, &whole); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", src, err, want)
		}
	}
	p = Package{Tests: []Test{{Name: "TestVMA"}}}
	p.fill(directives{})
	if got := p.Tests[0].Machines; !reflect.DeepEqual(got, []string{""}) {
		t.Errorf("no directive: machines %q, want the default one", got)
	}
}

// A test runs on the machines that it names for the architecture, or on those that are not
// another's by their processor.
func TestOn(t *testing.T) {
	re := regexp.MustCompile("^TestVM")
	var p Package
	var whole directives
	src := "package x\n\n//testbed:machine fabric+EPYC\n//testbed:machine-arm64 fabric\n\nfunc TestVMA(t *testing.T) {}\n" +
		"//testbed:machine fabric fabric+EPYC fabric+iommu+Nehalem\nfunc TestVMB(t *testing.T) {}\n" +
		"//testbed:machine fabric+EPYC\nfunc TestVMC(t *testing.T) {}\n" +
		"//testbed:machine-arm64 switch\nfunc TestVMD(t *testing.T) {}\n"
	if err := p.scan(src, re, &whole); err != nil {
		t.Fatal(err)
	}
	p.fill(whole)
	for i, want := range []map[string][]string{
		{"amd64": {"fabric+EPYC"}, "arm64": {"fabric"}},
		{"amd64": {"fabric", "fabric+EPYC", "fabric+iommu+Nehalem"}, "arm64": {"fabric"}},
		{"amd64": {"fabric+EPYC"}, "arm64": nil},
		{"amd64": {"fabric+EPYC"}, "arm64": {"switch"}},
	} {
		for arch, machines := range want {
			if got := p.Tests[i].On(arch); !slices.Equal(got, machines) {
				t.Errorf("%s on %s: %q, want %q", p.Tests[i].Name, arch, got, machines)
			}
		}
	}
	if err := p.scan("//testbed:machine-sparc a\nfunc TestVMX(t *testing.T) {}\n", re, &whole); err == nil || !strings.Contains(err.Error(), "amd64, arm64") {
		t.Errorf("an unknown architecture: %v", err)
	}
}

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestVMA"}
{"Action":"run","Package":"p","Test":"TestVMA/one"}
{"Action":"output","Package":"p","Test":"TestVMA/one","Output":"    a_test.go:1: no heap here\n"}
{"Action":"skip","Package":"p","Test":"TestVMA/one","Elapsed":0.1}
{"Action":"run","Package":"p","Test":"TestVMA/two"}
{"Action":"pass","Package":"p","Test":"TestVMA/two","Elapsed":1.5}
{"Action":"pass","Package":"p","Test":"TestVMA","Elapsed":1.6}
{"Action":"run","Package":"p","Test":"TestVMB"}
{"Action":"output","Package":"p","Test":"TestVMB","Output":"panic: boom\n"}
`

func collect(t *testing.T, text, failure string) []suite.Result {
	t.Helper()
	c := Collector{Package: "p", Live: &strings.Builder{}}
	if err := c.Read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return c.Results(failure)
}

func states(rs []suite.Result) map[string]suite.State {
	m := map[string]suite.State{}
	for _, r := range rs {
		m[r.Name] = r.State
	}
	return m
}

// A test that was running when the binary died has failed.
func TestCollector(t *testing.T) {
	rs := collect(t, events, "the test binary ended with status 2")
	want := map[string]suite.State{
		"TestVMA": suite.Passed, "TestVMA/one": suite.Skipped, "TestVMA/two": suite.Passed, "TestVMB": suite.Failed,
	}
	if got := states(rs); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	last := rs[len(rs)-1]
	for _, part := range []string{"panic: boom", "status 2"} {
		if !strings.Contains(last.Output, part) {
			t.Errorf("the output of %s lacks %q: %s", last.Name, part, last.Output)
		}
	}
	if !rs[0].Parent || rs[1].Parent {
		t.Errorf("parents: %v, %v", rs[0].Parent, rs[1].Parent)
	}
}

// A binary that fails without a failing test, or before the first, fails as a
// whole: no way of dying may look like success.
func TestCollectorPackage(t *testing.T) {
	passed := `{"Action":"run","Test":"TestVMA"}
{"Action":"pass","Test":"TestVMA"}
`
	for name, c := range map[string]struct {
		events, failure string
		want            map[string]suite.State
	}{
		"bad status after passes": {passed, "status 66", map[string]suite.State{"TestVMA": suite.Passed, "(package)": suite.Failed}},
		"fail event":              {passed + `{"Action":"fail"}`, "", map[string]suite.State{"TestVMA": suite.Passed, "(package)": suite.Failed}},
		"nothing ran":             {"", "the machine ended", map[string]suite.State{"(package)": suite.Failed}},
		"success":                 {passed + `{"Action":"pass"}`, "", map[string]suite.State{"TestVMA": suite.Passed}},
	} {
		if got := states(collect(t, c.events, c.failure)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	c := Collector{Live: &strings.Builder{}}
	if err := c.Read(strings.NewReader("not json\n")); err == nil {
		t.Error("a broken event: no error")
	}
}
