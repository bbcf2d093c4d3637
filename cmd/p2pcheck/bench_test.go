// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// size is that of a machine: below each switch are two GPUs and two NICs.
type size struct{ switches, functions int }

// aim is the machine that the aims in docs/bench.md are of.
var aim = size{switches: 8, functions: 4000}

func (s size) String() string {
	return fmt.Sprintf("%d GPUs, %d NICs, %d functions", 2*s.switches, 2*s.switches, s.functions)
}

// machine has no more than eight switches.
func (s size) machine(t testing.TB) string {
	var tree strings.Builder
	functions := 0
	// lspci wants interrupt and regions of each.
	add := func(format string, args ...any) {
		fmt.Fprintf(&tree, format+" irq=0 resource=0x0_0x0_0x0\n", args...)
		functions++
	}
	for i := range s.switches {
		bus := fmt.Sprintf("%02x", i*0x20)
		up := fmt.Sprintf("pci0000:%s/0000:%s:01.0/0000:%02x:00.0", bus, bus, i*0x20+1)
		add("pci0000:%s/0000:%s:01.0 class=0x060400 type=4", bus, bus)
		add("%s class=0x060400 type=5", up)
		for port := range 4 {
			down := fmt.Sprintf("%s/0000:%02x:%02x.0", up, i*0x20+2, port)
			add("%s class=0x060400 type=6 acs=0x1d", down)
			what := "class=0x120000 driver:amdgpu"
			if port%2 == 1 {
				what = fmt.Sprintf("class=0x020000 driver:mlx5_core rdma:mlx5_%d", i*2+port/2)
			}
			add("%s/0000:%02x:00.0 %s", down, i*0x20+3+port, what)
		}
	}
	for functions < s.functions {
		add("pci0001:00/%04x:%02x:%02x.%d class=0x088000", 1+functions>>13, functions>>8&0xff, functions>>3&0x1f, functions&7)
	}
	machine := machineTree(tree.String(), "")
	machine.Files["sys/bus/pci/drivers/mlx5_core/bind"] = "" // every driver of a kernel's sysfs has one
	machine.Files["etc/libibverbs.d/mlx5.driver"] = "driver mlx5\n"
	machine.Files["usr/lib64/libibverbs.so.1.14.50.0"] = library()
	machine.Files["usr/lib64/libibverbs/libmlx5-rdmav34.so"] = ""
	return machine.Write(t)
}

// library is as large as libibverbs is.
func library() string {
	code := make([]byte, 134<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range code {
		code[i] = byte(random.Uint32())
	}
	return string(code) + "\x00/usr/lib64/libibverbs/lib%s-rdmav34.so\x00"
}

// All predictions and checks for 16 GPUs and 16 NICs of 4,000 functions, then of
// other sizes: half and twice the functions, half and a quarter of the devices.
func BenchmarkCheck(b *testing.B) {
	for _, s := range []size{
		aim, {aim.switches, aim.functions / 2}, {aim.switches, aim.functions * 2}, {aim.switches / 2, aim.functions}, {aim.switches / 4, aim.functions},
	} {
		b.Run(s.String(), func(b *testing.B) {
			root := s.machine(b)
			b.ReportAllocs()
			for b.Loop() {
				a := &app{stdout: io.Discard, stderr: io.Discard}
				if status := a.run([]string{"--root", root}); status != cli.ExitFailed {
					b.Fatal(status)
				}
			}
		})
	}
}

// The cost is linear in functions and in pairs: each more costs no more file
// accesses, and no more memory, than one of those before. Of a machine that is twice
// and four times as large the second step is twice the first.
func TestCostIsLinear(t *testing.T) {
	testenv.Exhaustive(t)
	cost := func(s size) (accesses, allocations float64) {
		root := s.machine(t)
		look := func() {
			a := &app{stdout: io.Discard, stderr: io.Discard}
			if status := a.run([]string{"--root", root}); status != cli.ExitFailed {
				t.Fatalf("%v: status %d", s, status)
			}
		}
		stop := testenv.WatchFiles(t, root, func(string) error { accesses++; return nil })
		look()
		stop()
		return accesses, testing.AllocsPerRun(1, look)
	}
	for _, c := range []struct {
		of    string
		sizes [3]size
		n     func(size) float64
	}{
		{"functions", [3]size{{2, 500}, {2, 1000}, {2, 2000}}, func(s size) float64 { return float64(s.functions) }},
		{"pairs", [3]size{{2, 500}, {4, 500}, {8, 500}}, func(s size) float64 { return float64(4 * s.switches * s.switches) }},
	} {
		var n, accesses, allocations [3]float64
		for i, s := range c.sizes {
			n[i] = c.n(s)
			accesses[i], allocations[i] = cost(s)
		}
		t.Logf("%s %v: %v file accesses, %v allocations", c.of, n, accesses, allocations)
		for what, cost := range map[string][3]float64{"file accesses": accesses, "allocations": allocations} {
			first, second := (cost[1]-cost[0])/(n[1]-n[0]), (cost[2]-cost[1])/(n[2]-n[1])
			if first < 0 || second > 1.1*max(first, 0.1) {
				t.Errorf("%s for each of the %s: %.2f, then %.2f", what, c.of, first, second)
			}
		}
	}
}

// peer is a program that takes a machine apart.
type peer struct {
	name string
	argv []string
	env  []string

	times, cpu []time.Duration // of the wall clock, of processors
}

// BenchmarkPeers runs p2pcheck beside lspci and lstopo, which read the same tree
// and decide nothing: all in turn, and p2pcheck twice, whose difference from
// itself is the noise. The ratios are of processor time, which depends less on
// what else runs.
func BenchmarkPeers(b *testing.B) {
	root := aim.machine(b)
	self := peer{name: "p2pcheck", argv: []string{os.Args[0], "--root", root}, env: []string{asCommand + "=1"}}
	again := self
	again.name = "p2pcheck-again"
	all := []*peer{&self, &again,
		{name: "lspci", argv: []string{"lspci", "-vvv", "-A", "linux-sysfs", "-O", "sysfs.path=" + root + "/sys/bus/pci"}},
		{name: "lstopo", argv: []string{"lstopo-no-graphics", "--whole-io", "--of", "console"}, env: []string{"HWLOC_FSROOT=" + root, "HWLOC_THISSYSTEM=0", "HWLOC_COMPONENTS=-pci"}},
	}
	for _, p := range all {
		if _, err := exec.LookPath(p.argv[0]); err != nil {
			b.Skipf("%v: testbed/setup.sh bench installs it", err)
		}
	}
	var most int64
	for b.Loop() {
		for _, p := range all {
			bytes := p.run(b)
			if p == &self {
				most = max(most, bytes)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them together it says nothing
	for _, p := range all {
		b.ReportMetric(float64(median(p.times).Microseconds())/1000, p.name+"-ms")
		b.ReportMetric(float64(median(p.cpu).Microseconds())/1000, p.name+"-cpu-ms")
	}
	b.ReportMetric(float64(most)/(1<<20), "p2pcheck-MiB-at-most")
	for _, p := range all[1:] {
		ratios := make([]float64, len(p.cpu))
		for i := range ratios {
			ratios[i] = float64(self.cpu[i]) / float64(p.cpu[i])
		}
		slices.Sort(ratios)
		b.Logf("p2pcheck takes %.2f of the processor time of %s (median; the middle half %.2f to %.2f)", median(ratios), p.name, ratios[len(ratios)/4], ratios[len(ratios)*3/4])
	}
}

// run returns the most memory that the program had. It is no less than what this
// process has, which it was made from.
func (p *peer) run(b *testing.B) int64 {
	cmd := exec.CommandContext(context.Background(), p.argv[0], p.argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	var out counter
	cmd.Stdout = &out
	start := time.Now()
	err := cmd.Run()
	p.times = append(p.times, time.Since(start))
	if cmd.ProcessState == nil || out == 0 {
		b.Fatalf("%s: %v, %d bytes", p.name, err, out)
	}
	p.cpu = append(p.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(data []byte) (int, error) {
	*c += counter(len(data))
	return len(data), nil
}

// median sorts.
func median[T int64 | float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// BenchmarkSnapshot checks a machine of 16,000 functions by its files, and by a snapshot of them. The aim is at most
// three times the processor time.
func BenchmarkSnapshot(b *testing.B) {
	root := size{aim.switches, 16_000}.machine(b)
	archive := filepath.Join(b.TempDir(), "snapshot")
	if r := command("snapshot", archive, "--root", root); r.status != cli.ExitOK {
		b.Fatal(r)
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i, flags := range [][]string{{"--root", root}, {"--snapshot", archive}} {
			before := testenv.ProcessTime(b)
			if r := command(flags...); r.status != cli.ExitFailed {
				b.Fatal(r)
			}
			spent[i] += testenv.ProcessTime(b) - before
		}
	}
	b.ReportMetric(spent[0].Seconds()/float64(b.N), "root-cpu-s")
	b.ReportMetric(spent[1].Seconds()/float64(b.N), "snapshot-cpu-s")
	b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "times")
}

// BenchmarkSnapshotOfMany takes a snapshot of a machine of 100,000 functions, and checks it, each in a process of its own. The aims
// are a minute and 200 MB for the first.
func BenchmarkSnapshotOfMany(b *testing.B) {
	root := size{aim.switches, 100_000}.machine(b)
	archive := filepath.Join(b.TempDir(), "snapshot")
	for b.Loop() {
		for what, args := range [][]string{{"snapshot", archive, "--root", root}, {"--snapshot", archive}} {
			name := []string{"taken", "read"}[what]
			start := time.Now()
			out, state, spent := runMeasured(b, args...)
			if state.ExitCode() > cli.ExitFailed {
				b.Fatalf("%v: %v\n%s", args, state, out)
			}
			b.ReportMetric(time.Since(start).Seconds(), name+"-s")
			b.ReportMetric(float64(spent.Peak)/(1<<20), name+"-MiB-at-most")
		}
	}
	b.ReportMetric(0, "ns/op")
}
