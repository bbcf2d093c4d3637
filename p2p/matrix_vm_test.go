// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// kernelDecision is one of the kernel's own, read where it returns.
type kernelDecision struct {
	kind  p2pdma.MapType
	steps int
}

// decisionTrace is a probe on the function that decides.
type decisionTrace struct{ dir string }

// traceDecisions is nil where the kernel is built without that function.
func traceDecisions(t *testing.T, built placement.Answer) *decisionTrace {
	t.Helper()
	if built != placement.Yes {
		return nil
	}
	const dir = "/sys/kernel/tracing"
	if _, err := os.Stat(dir + "/kprobe_events"); err != nil {
		if err := unix.Mount("none", dir, "tracefs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	const event = "r:gpurdma/decision calc_map_type_and_dist type=$retval:u32 steps=+0($arg3):s32"
	put := func(name, text string) { // to open kprobe_events anew would take away the probes of others
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Errorf("%q to %s: %v", text, name, err)
		}
	}
	put("kprobe_events", event)
	t.Cleanup(func() {
		put("events/gpurdma/decision/enable", "0")
		put("kprobe_events", "-:gpurdma/decision")
	})
	put("events/gpurdma/decision/enable", "1")
	d := &decisionTrace{dir}
	d.empty(t)
	return d
}

// read takes what was decided since the last time: of want calls.
func (d *decisionTrace) read(t *testing.T, want int) []kernelDecision {
	t.Helper()
	if d == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	var out []kernelDecision
	for line := range strings.Lines(string(text)) {
		if at := strings.Index(line, " type="); at >= 0 {
			var k kernelDecision
			if _, err := fmt.Sscanf(line[at:], " type=%d steps=%d", &k.kind, &k.steps); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			out = append(out, k)
		}
	}
	if len(out) != want {
		t.Fatalf("%d decisions were traced, and %d were asked for:\n%s", len(out), want, text)
	}
	d.empty(t)
	return out
}

func (d *decisionTrace) empty(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "trace"), nil, 0); err != nil { // it is to be opened with O_TRUNC
		t.Fatal(err)
	}
}

// combinations are what was seen of devices that have or want memory: the way
// between them and ACS on it, and what the kernel made of that.
type combinations map[[2]string]*combination

type combination struct {
	kinds []string
	steps []int
	pairs int
}

func (c combinations) add(m *machine.Machine, from, to pciaddr.Addr, d p2pdma.Decision, k kernelDecision) {
	key := [2]string{topology(m, from, to), acsOnTheWay(m, d, to)}
	row := c[key]
	if row == nil {
		row = &combination{}
		c[key] = row
	}
	row.pairs++
	if kind := k.kind.String(); !slices.Contains(row.kinds, kind) {
		row.kinds = append(row.kinds, kind)
	}
	if !slices.Contains(row.steps, k.steps) {
		row.steps = append(row.steps, k.steps)
		slices.Sort(row.steps)
	}
}

// endpoints are the machine's devices, and their virtual functions.
func endpoints(t *testing.T) map[pciaddr.Addr]bool {
	t.Helper()
	out := map[pciaddr.Addr]bool{}
	links, err := filepath.Glob("/run/gpurdma/pci/*[a-z][0-9]")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		dir, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(link); strings.HasPrefix(name, "port") || strings.HasPrefix(name, "switch") {
			continue
		}
		out[machinetest.Addr(t, filepath.Base(dir))] = true
		virtual, _ := filepath.Glob(dir + "/virtfn*")
		for _, v := range virtual {
			to, err := os.Readlink(v)
			if err != nil {
				t.Fatal(err)
			}
			out[machinetest.Addr(t, filepath.Base(to))] = true
		}
	}
	return out
}

// isVirtual reports a virtual function.
func isVirtual(a pciaddr.Addr) bool {
	_, err := os.Lstat("/sys/bus/pci/devices/" + a.String() + "/physfn")
	return err == nil
}

// topology names the way between two functions, by their places in sysfs.
func topology(m *machine.Machine, from, to pciaddr.Addr) string {
	a, _ := pci.Chain(m.Sys, from)
	b, _ := pci.Chain(m.Sys, to)
	shared := 0
	for shared < min(len(a), len(b)) && a[shared] == b[shared] {
		shared++
	}
	up, down := len(a)-shared, len(b)-shared
	name := ""
	switch {
	case shared == 0:
		name = "two host bridges"
	case shared == 1:
		name = "two root ports"
	case up == 1 && down == 1:
		name = "one slot"
	case up == 2 && down == 2:
		name = "one switch"
	default:
		name = "a switch below a switch"
	}
	if isVirtual(from) || isVirtual(to) {
		name += ", a virtual function"
	}
	return name
}

// acsOnTheWay names what the ports do below the bridge that both have in common.
func acsOnTheWay(m *machine.Machine, d p2pdma.Decision, to pciaddr.Addr) string {
	if d.Common == nil {
		return "any"
	}
	if len(d.Redirects) > 0 {
		return "redirects"
	}
	up, _ := pci.Upstream(m.Sys, to)
	for _, port := range up {
		if c, err := pci.ReadConfig(m.Sys, port); err == nil {
			if acs, err := c.ACS(); err == nil && acs.Present {
				return "lets pass"
			}
		}
		if port == *d.Common {
			break
		}
	}
	return "none"
}

// table is the documents' of what was seen.
const table = "../docs/reference/p2p-decisions.md"

// compare holds the documents to what is seen on this machine.
func (c combinations) compare(t *testing.T, cpu machine.CPU) {
	t.Helper()
	machine := os.Getenv("GPURDMA_MACHINE")
	if !strings.Contains(machine, "+") && (cpu.Vendor != "AuthenticAMD" || cpu.Family != 15) {
		t.Logf("%v: not the processor that QEMU emulates unless told another, of which the documents are", cpu)
		return
	}
	var got []string
	for _, key := range slices.SortedFunc(maps.Keys(c), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		row := c[key]
		slices.Sort(row.kinds)
		steps := strings.Trim(strings.ReplaceAll(fmt.Sprint(row.steps), " ", ", "), "[]")
		got = append(got, fmt.Sprintf("| %s | %s | %s | %s | %s | %d |\n", machine, key[0], key[1], strings.Join(row.kinds, ", "), steps, row.pairs))
	}
	if want := documented(t, machine); !slices.Equal(got, want) {
		t.Errorf("%s has\n%sand this was seen:\n%s", table, strings.Join(want, ""), strings.Join(got, ""))
	}
}

// documented are the table's rows of a machine; of all for "".
func documented(t *testing.T, machine string) []string {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		board, _, _ := strings.Cut(name, "+")
		if ok && strings.HasPrefix(line, "| ") && (board == "fabric" || board == "nested") && (machine == "" || name == machine) {
			out = append(out, line)
		}
	}
	return out
}

// The machines of the documented matrix cover the combinations of a pair's topology, the processor,
// the IOMMU's mode and ACS.
func TestCombinations(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range documented(t, "") {
		f := strings.Split(strings.Trim(strings.TrimSpace(row), "| "), " | ")
		if len(f) != 6 {
			t.Fatalf("%q has %d columns", row, len(f))
		}
		cpu, iommu := "max", "none"
		for _, v := range strings.Split(f[0], "+")[1:] {
			switch v {
			case "iommu", "pt":
				iommu = v
			case "noredir", "remedy":
			default:
				cpu = v
			}
		}
		seen[strings.Join([]string{f[1], cpu, iommu, f[2]}, ", ")] = true
	}
	const enough = 25
	if len(seen) < enough {
		t.Errorf("%d combinations: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
	t.Logf("%d combinations", len(seen))
}
