// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpurdma/gpurdma"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string
	Name         string
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// room is the package's room: its first path element, "" for the root package. A
// package of internal that has a row of its own in mayImport is a room by itself.
func room(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, module)
	if !ok {
		return "?"
	}
	rest = strings.TrimPrefix(rest, "/")
	if _, ok := mayImport[rest]; ok {
		return rest
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

// mayImport is the table of docs/explanation/packages.md: arrows only ever point down.
// Every room may import itself.
var mayImport = map[string][]string{
	"cmd":        {"", "internal/rails", "internal/mailbox", "internal/progress", "internal/engine", "internal/nicmetrics", "internal/workqueue", "internal/rma", "internal/operation", "internal/memory", "internal/mesh", "internal/mesh/worker", "internal/mesh/probe", "internal/mesh/control", "p2p", "canary", "trace", "gpualloc", "ibvfd", "drm", "dmabuf", "failure", "placement", "pciaddr", "internal"},
	"examples":   {"", "fabrictest", "gpualloc", "dmabuf", "failure"},
	"metrics":    {"", "internal/nicmetrics", "internal/workqueue"},
	"":           {"internal/bridge", "internal/rails", "internal/verify", "internal/engine", "internal/workqueue", "internal/mailbox", "internal/progress", "internal/operation", "internal/memory", "layout", "gpualloc", "ibvfd", "dmabuf", "failure", "placement", "pciaddr", "internal"},
	"fabrictest": {"", "fi", "internal/bridge", "internal/memory", "internal/memnic", "internal/memstream", "internal/rc", "gpualloc", "ibvfd", "dmabuf", "failure", "pciaddr", "internal"},
	"fi":         {"internal/bridge", "internal/engine", "internal/rma", "internal/operation", "internal/memory", "layout", "gpualloc", "ibvfd", "dmabuf", "failure", "placement", "pciaddr", "internal"},
	"layout":     {"dmabuf", "failure", "internal", "internal/wire"},
	"p2p":        {"canary", "gpualloc", "ibvfd", "trace", "drm", "dmabuf", "failure", "placement", "pciaddr", "internal"},
	"bench":      {"", "internal/engine", "internal/rma", "internal/operation", "internal/memory", "trace", "gpualloc", "ibvfd", "pciaddr", "internal"},
	"canary":     {"gpualloc", "ibvfd", "dmabuf", "failure", "pciaddr", "internal"},
	"trace":      {"dmabuf", "failure", "placement", "pciaddr", "internal"},
	"gpualloc":   {"drm", "dmabuf", "failure", "pciaddr", "internal"},
	"ibvfd":      {"dmabuf", "failure", "pciaddr", "internal"},
	"drm":        {"dmabuf", "failure", "pciaddr", "internal"},
	"dmabuf":     {"failure", "internal"},
	"failure":    {"internal"},
	"placement":  {},
	"internal":   {"pciaddr"},
	"pciaddr":    {},

	// Packages of internal that import what the others may not.
	"internal/bridge":      {"internal/memory"},
	"internal/rails":       {"internal/engine", "internal/homes", "internal/workqueue", "internal/mailbox", "internal/verify", "layout", "internal/progress", "internal/exchange", "internal/operation", "internal/memory", "internal/cmstream", "internal/wire", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/engine":      {"internal/rma", "internal/workqueue", "internal/request", "internal/mailbox", "internal/progress", "internal/cqueue", "internal/operation", "internal/slab", "internal/offers", "internal/exchange", "internal/memory", "internal/cmstream", "internal/rc", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/homes":       {"dmabuf", "failure"},
	"internal/offers":      {"internal/exchange", "internal/memory", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/rma":         {"internal/workqueue", "internal/operation", "internal/memory"},
	"internal/nicmetrics":  {"internal/workqueue", "internal/operation"},
	"internal/workqueue":   {"internal/request", "internal/mailbox", "internal/verify", "internal/progress", "internal/cqueue", "internal/operation", "internal/memory", "internal/rc", "internal/wire", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/request":     {"internal/operation", "internal/slab", "internal/verify", "internal/memory", "internal/rc", "internal/lower", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/mailbox":     {"internal/verify", "internal/memory", "internal/lower", "internal/wire", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/progress":    {"internal/cqueue", "internal/operation", "internal/memory", "internal"},
	"internal/cqueue":      {"internal/memory", "internal/rc", "ibvfd", "internal"},
	"internal/operation":   {"internal/rc", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/slab":        {"internal/memory", "internal/lower", "dmabuf", "failure", "internal"},
	"internal/exchange":    {"internal/memory", "internal/cmstream", "internal/rc", "internal/wire", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/memory":      {"internal/rc", "internal/lower", "internal/wire", "layout", "gpualloc", "ibvfd", "dmabuf", "failure", "placement", "pciaddr", "internal"},
	"internal/cmstream":    {"internal/rc", "internal/wire", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/rc":          {"internal/lower", "gpualloc", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/memstream":   {"internal/rc", "internal"},
	"internal/memnic":      {"internal/memstream", "internal/rc", "internal/lower", "gpualloc", "ibvfd", "dmabuf", "failure", "pciaddr", "internal"},
	"internal/lower":       {"layout", "ibvfd", "dmabuf", "failure", "internal"},
	"internal/verify":      {"internal/wire", "layout", "dmabuf", "failure", "internal"},
	"internal/wire":        {"dmabuf", "failure", "internal"},
	"internal/layouttest":  {"internal/lower", "layout", "internal"},
	"internal/conformance": {},
	"internal/looktest":    {"p2p", "internal"},

	// The mesh: its order, its comparison and its lists of nodes are packages of internal.
	"internal/mesh":         {"internal/mesh/control", "internal/mesh/probe", "internal"},
	"internal/mesh/worker":  {"internal/mesh/control", "internal/mesh/probe", "internal"},
	"internal/mesh/probe":   {"", "internal/mesh/control", "ibvfd", "internal"},
	"internal/mesh/control": {"internal/exchange", "dmabuf", "failure", "internal"},
}

// mayTestImport adds what a room's tests may use beside that: a neighbour
// that makes the buffers they register, that registers what they make, or that
// watches the kernel do it.
var mayTestImport = map[string][]string{
	"":         {"internal/memnic", "internal/memstream", "fabrictest"},
	"cmd":      {"internal/memnic", "fabrictest"},
	"examples": {"internal"},
	"metrics":  {"fabrictest", "internal/operation"},
	"layout":   {"internal/layouttest"},
	"p2p":      {"internal/looktest"},
	"fi":       {"internal/memnic", "internal/rc", "internal/wire"},
	"gpualloc": {"canary", "ibvfd"},
	"ibvfd":    {"gpualloc", "drm"},
	"trace":    {"gpualloc", "ibvfd"},

	"internal/engine":      {"trace", "internal/layouttest", "internal/memnic", "internal/memstream", "internal/lower", "internal/wire", "layout", "gpualloc", "placement", "pciaddr"},
	"internal/cqueue":      {"internal/memnic"},
	"internal/mailbox":     {"internal/memnic"},
	"internal/offers":      {"internal/memnic"},
	"internal/rails":       {"internal/memnic"},
	"internal/memory":      {"internal/layouttest", "internal/memnic"},
	"internal/lower":       {"internal/layouttest"},
	"internal/mesh":        {"", "fabrictest", "internal/mesh/worker"},
	"internal/conformance": {"", "fabrictest", "layout", "placement", "internal/memstream", "internal/memnic", "internal/memory", "internal/bridge", "internal/rc", "ibvfd", "gpualloc", "dmabuf", "failure", "internal"},
}

// p2pLevels are the packages of room p2p, from the highest to the lowest: each may
// import those of the levels below its own. A package in none of them is a leaf: it
// imports no other package of the room.
var p2pLevels = [][]string{
	{"page"},
	{"live", "checks", "lspci", "formats", "topo", "proofs", "fleet", "intake"},
	{"render", "snapshot", "pciids"},
	{"result", "redact"},
	{"check/libcheck"},
	{"check/gpucheck", "check/hostcheck", "check/niccheck", "check/paircheck", "check/pciecheck"},
	{"check"},
	{""},
	{"drivers"},
	{"p2pdma"},
	{"machine"},
}

// regLevels are the same of the packages below cmd/dmabuf-reg/internal.
var regLevels = [][]string{
	{"register", "inspect", "verify", "tracing", "serve", "connect", "bench", "mesh"},
	{"report", "trial", "flap"},
	{"devices", "peer"},
	{"station"},
	{"link", "buffer", "nics", "witness"},
	{"app", "options"},
}

func TestP2PImportsPointDown(t *testing.T) { checkLevels(t, "p2p", p2pLevels) }

func TestDMABufRegImportsPointDown(t *testing.T) {
	checkLevels(t, "cmd/dmabuf-reg/internal", regLevels)
}

// checkLevels checks that the packages of a folder import only those of lower levels.
func checkLevels(t *testing.T, folder string, levels [][]string) {
	t.Helper()
	below := func(importPath string) (name string, ok bool) {
		name, ok = strings.CutPrefix(importPath+"/", module+"/"+folder+"/")
		return strings.TrimSuffix(name, "/"), ok
	}
	level := func(name string) int {
		i := slices.IndexFunc(levels, func(names []string) bool { return slices.Contains(names, name) })
		if i < 0 {
			return len(levels)
		}
		return i
	}
	n := 0
	for _, p := range list(t) {
		name, ok := below(p.ImportPath)
		if !ok || forTests(p) {
			continue
		}
		n++
		for _, imported := range p.Imports {
			if to, ok := below(imported); ok && level(to) <= level(name) {
				t.Errorf("%s imports %s, which is not below it", p.ImportPath, imported)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d packages", n)
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs
		case err != nil:
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsPointDown(t *testing.T) {
	check := func(from pkg, imports []string, allowed []string) {
		for _, to := range imports {
			r := room(to)
			if r == "?" || r == room(from.ImportPath) || slices.Contains(allowed, r) {
				continue
			}
			t.Errorf("%s imports %s: room %q may import only %q", from.ImportPath, to, room(from.ImportPath), allowed)
		}
	}
	for _, p := range list(t) {
		r := room(p.ImportPath)
		allowed, ok := mayImport[r]
		if !ok {
			t.Errorf("%s is in no room that docs/explanation/packages.md knows", p.ImportPath)
			continue
		}
		tests := append(slices.Clone(allowed), mayTestImport[r]...)
		if forTests(p) {
			allowed = tests
		}
		check(p, p.Imports, allowed)
		check(p, p.TestImports, tests)
		check(p, p.XTestImports, tests)
	}
}

// forTests are the packages that only tests import.
func forTests(p pkg) bool {
	switch p.ImportPath {
	case module + "/internal/testenv", module + "/internal/abicheck", module + "/internal/layouttest", module + "/internal/ioctl/ioctltest", module + "/gpualloc/internal/doubles", module + "/internal/exampletest", module + "/internal/pagetest", module + "/internal/looktest", module + "/p2p/internal/machinetest",
		module + "/cmd/dmabuf-reg/internal/golden", module + "/cmd/dmabuf-reg/internal/stationtest":
		return true
	case module + "/cmd/internal/referencetest":
		return true
	}
	return false
}

// Some dependencies belong to one kind of room. A library user must not
// inherit them.
func TestDependenciesStayInTheirRooms(t *testing.T) {
	onlyIn := map[string]func(pkg) bool{
		"github.com/spf13/cobra":        func(p pkg) bool { return room(p.ImportPath) == "cmd" },
		"golang.org/x/term":             func(p pkg) bool { return room(p.ImportPath) == "cmd" },
		"github.com/NVIDIA/go-nvml":     func(p pkg) bool { return room(p.ImportPath) == "cmd" || strings.Contains(p.ImportPath, "nvml") },
		"github.com/cilium/ebpf/rlimit": func(p pkg) bool { return room(p.ImportPath) == "cmd" },
		"github.com/prometheus": func(p pkg) bool {
			r := room(p.ImportPath)
			return r == "cmd" || r == "metrics" || r == "internal/nicmetrics"
		},
		"os/exec": func(p pkg) bool {
			r := room(p.ImportPath)
			return r == "cmd" || r == "bench" || r == "examples" || forTests(p)
		},
		module + "/gpualloc/nvml":             func(p pkg) bool { r := room(p.ImportPath); return r == "cmd" || r == "p2p" },
		module + "/internal/testenv":          forTests,
		module + "/internal/abicheck":         forTests,
		module + "/internal/layouttest":       forTests,
		module + "/internal/exampletest":      forTests,
		module + "/internal/pagetest":         forTests,
		module + "/internal/looktest":         forTests,
		module + "/internal/ioctl/ioctltest":  forTests,
		module + "/gpualloc/internal/doubles": forTests,
		"testing":                             forTests,
	}
	for _, p := range list(t) {
		for _, imported := range p.Imports {
			for dep, allowed := range onlyIn {
				if (imported == dep || strings.HasPrefix(imported, dep+"/")) && !allowed(p) {
					t.Errorf("%s imports %s outside its room", p.ImportPath, imported)
				}
			}
		}
	}
}
