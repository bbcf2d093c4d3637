// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// The prediction equals the kernel's decision for any two functions, and the outcome for each
// behaviour of the software GPU and each kind of importer: the distance, the answers of attach and
// map, the kind of addresses, and the bytes that a DMA engine moves.
//
//testbed:machine fabric fabric+EPYC fabric+Nehalem fabric+EPYC+iommu fabric+EPYC+pt fabric+EPYC+iommu+noredir fabric+Skylake-Server+iommu
//testbed:machine-arm64 fabric+neoverse-n1 fabric+neoverse-n1+iommu fabric+neoverse-n1+pt fabric+neoverse-n1+iommu+noredir
//testbed:kernel 7.2
func TestVMDecision(t *testing.T) { decisionTable(t) }

// The same where the kernel is built without peer-to-peer.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMDecisionWithoutP2PDMA(t *testing.T) { decisionTable(t) }

// The same for switches below switches and functions of one slot, with NVMe
// controllers, which move bytes to each other by the kernel's own decision. On one
// of the machines each behaviour is imported by each kind of importer, on the others
// those that do and that do not want bus addresses by a dynamic one.
//
//testbed:machine nested+EPYC+iommu nested+Nehalem+noredir nested+Nehalem+iommu nested+Nehalem+iommu+remedy
//testbed:kernel 7.2
func TestVMNested(t *testing.T) {
	b := newBench(t)
	virtualFunctions(t)
	t.Run("distance", b.distances)
	t.Run("NVMe", b.nvmes)
	b.few = os.Getenv("GPURDMA_MACHINE") != "nested+Nehalem+iommu"
	for _, v := range variants {
		if !b.few || v.name == "xe" || v.name == "vfio" {
			t.Run(v.name, func(t *testing.T) { b.behaviour(t, v) })
		}
	}
	t.Logf("rows: %v", b.seen.n)
	if !b.few {
		b.enough(t)
	}
}

// bench is the machine under test.
type bench struct {
	m    *machine.Machine
	gpus []testenv.SoftGPU
	imp  *testenv.Importer
	seen *outcomes
	few  bool // only dynamic importers
}

// outcomes are rows by what happened.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n[what]++
}

func newBench(t *testing.T) bench {
	testenv.VM(t)
	b := bench{gpus: testenv.SoftGPUs(t, "personality=xe"), imp: testenv.TestImporter(t), m: machine.Open(""), seen: &outcomes{n: map[string]int{}}}
	t.Logf("%s, P2PDMA %v (%s), %v", b.m.Kernel.Release, b.m.Kernel.P2PDMA, b.m.Kernel.Source, b.m.CPU)
	return b
}

func decisionTable(t *testing.T) {
	b := newBench(t)
	t.Run("distance", b.distances)
	t.Run("unprivileged", b.unprivileged)
	t.Run("RDMA device", b.rdma)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { b.behaviour(t, v) })
	}
	t.Logf("rows: %v", b.seen.n)
	b.enough(t)
}

// enough looks that imports ended in each way that there is on such a machine.
func (b bench) enough(t *testing.T) {
	wanted := []string{"direct physical address", "staged physical address", "moved by physical address"}
	moved := []drivers.Class{drivers.ClassAMDGPU, drivers.ClassXe, drivers.ClassI915, drivers.ClassNVIDIA, drivers.ClassNVIDIACoherent}
	if t, _ := b.m.TranslationOf(importers(t)["edu0"]); t == machine.Translated {
		wanted = []string{"direct IOVA", "direct bus address", "staged IOVA", "moved by IOVA"}
	} else if b.m.Kernel.P2PDMA == placement.Yes {
		wanted = append(wanted, "direct bus address", "moved by bus address")
		moved = append(moved, drivers.ClassVFIO) // whose bus addresses lead nowhere below an IOMMU
	}
	for _, c := range moved {
		wanted = append(wanted, movedFor(c))
	}
	for _, w := range append(wanted, "refused ENOTSUPP attach", "refused ENOMEM map", "refused EOPNOTSUPP attach") {
		if b.seen.n[w] == 0 {
			t.Errorf("no row was %q: %v", w, b.seen.n)
		}
	}
}

// functions are all PCI functions of the machine.
func functions(t *testing.T) []pciaddr.Addr {
	t.Helper()
	links, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	var out []pciaddr.Addr
	for _, l := range links {
		out = append(out, machinetest.Addr(t, filepath.Base(l)))
	}
	return out
}

// distances compares with the kernel for every pair of functions, bridges
// included: distance and map type.
func (b bench) distances(t *testing.T) {
	ways := map[int]int{}
	all := functions(t)
	distance := func(from pciaddr.Addr, to string) int {
		n, err := b.imp.Distance(from.String(), to)
		if err != nil {
			t.Fatalf("%v to %s: %v", from, to, err)
		}
		ways[n]++
		return n
	}
	compare := func(from pciaddr.Addr, to *pciaddr.Addr, want int) p2pdma.Decision {
		d := p2pdma.Decide(b.m, from, to)
		if got, ok := d.Distance(); !ok || got != want {
			t.Errorf("%v to %v: the kernel says %d; %d, %v: %v", from, to, want, got, ok, d)
		}
		return d
	}
	trace := traceDecisions(t, b.m.Kernel.P2PDMA)
	rows, ends := combinations{}, endpoints(t)
	for _, from := range all {
		var distances []int
		for _, to := range all {
			distances = append(distances, distance(from, to.String()))
		}
		decided := trace.read(t, len(all))
		for i, to := range all {
			d := compare(from, &to, distances[i])
			if decided == nil {
				continue // the kernel has no such function
			}
			if k := decided[i]; k.kind != d.Type || k.steps != d.Steps {
				t.Errorf("%v to %v: the kernel decides %v after %d steps; %d: %v", from, to, k.kind, k.steps, d.Steps, d)
			}
			if ends[from] && ends[to] && from != to {
				rows.add(b.m, from, to, d, decided[i])
			}
		}
		compare(from, nil, distance(from, testenv.SoftDevice))
	}
	t.Logf("pairs by distance: %v", ways)
	if ways[-1] == 0 || b.m.Kernel.P2PDMA == placement.Yes && ways[4] == 0 {
		t.Errorf("pairs by distance: %v", ways)
	}
	if b.m.Kernel.P2PDMA == placement.Yes {
		rows.compare(t, b.m.CPU)
	}
}

// unprivilegedEnv makes the test binary print what it decides.
const unprivilegedEnv = "GPURDMA_P2P_DECIDE"

func TestMain(m *testing.M) {
	if os.Getenv(unprivilegedEnv) == "" {
		testenv.Main(m)
		return
	}
	this := machine.Open("")
	links, _ := filepath.Glob("/sys/bus/pci/devices/*")
	for _, from := range links {
		for _, to := range links {
			a, err1 := pciaddr.Parse(filepath.Base(from))
			b, err2 := pciaddr.Parse(filepath.Base(to))
			d := p2pdma.Decide(this, a, &b)
			fmt.Printf("%v %v %d %d\n", a, b, d.Type, d.Supported)
			if err := errors.Join(err1, err2); err != nil {
				fmt.Println(err)
			}
		}
	}
}

// unprivileged compares with the decisions of a process to which the kernel shows 64 bytes of the
// configuration space: some of them are unknown, and all others are the same.
func (b bench) unprivileged(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), unprivilegedEnv+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	child.Dir = "/"
	out, err := child.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	known, unknown := 0, 0
	for line := range strings.Lines(string(out)) {
		var from, to string
		var d p2pdma.Decision
		if n, err := fmt.Sscanf(line, "%s %s %d %d\n", &from, &to, &d.Type, &d.Supported); n != 4 || err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		whole := p2pdma.Decide(b.m, machinetest.Addr(t, from), machinetest.Client(t, to))
		switch {
		case d.Supported != placement.AnswerUnknown && d.Supported != whole.Supported, d.Type != p2pdma.MapUnknown && d.Type != whole.Type:
			t.Errorf("unprivileged %v, supported %v: %s to %s: %v", d.Type, d.Supported, from, to, whole)
		case d.Type == p2pdma.MapUnknown:
			unknown++
		default:
			known++
		}
	}
	t.Logf("unprivileged: %d known, %d unknown", known, unknown)
	if known == 0 || b.m.Kernel.P2PDMA == placement.Yes && unknown == 0 {
		t.Errorf("%d known, %d unknown", known, unknown)
	}
}

// device is where one of the machine's is.
func device(t *testing.T, name string) pciaddr.Addr {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/run/gpurdma/pci/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return machinetest.Addr(t, filepath.Base(dir))
}

// importers are the machine's devices to attach for, and soft.
func importers(t *testing.T) map[string]*pciaddr.Addr {
	t.Helper()
	out := map[string]*pciaddr.Addr{testenv.SoftDevice: nil}
	for _, kind := range []string{"nic", "edu"} {
		for i := range 4 {
			name := kind + strconv.Itoa(i)
			a := device(t, name)
			out[name] = &a
		}
	}
	return out
}

// rdma finds the importers behind the machine's RDMA devices.
func (b bench) rdma(t *testing.T) {
	for i := range 4 {
		got, err := drivers.ImporterOf(b.m, "rxe"+strconv.Itoa(i))
		nic := importers(t)["nic"+strconv.Itoa(i)]
		if err != nil || got.PCI == nil || *got.PCI != *nic || got.Kind != drivers.Pinned || !got.PeerToPeer || got.Driver != "e1000e" {
			t.Errorf("rxe%d on %v: %+v, %v", i, nic, got, err)
		}
	}
	if got, err := drivers.ImporterOf(b.m, "rxe-soft"); err != nil || got.PCI != nil || got.Kind != drivers.Pinned {
		t.Errorf("rxe-soft: %+v, %v", got, err)
	}
	setFile(t, "/sys/class/infiniband/rxe0/importer", "revocable")
	setFile(t, "/sys/class/infiniband/rxe0/peer2peer", "0")
	if got, err := drivers.ImporterOf(b.m, "rxe0"); err != nil || got.Kind != drivers.Revocable || got.PeerToPeer {
		t.Errorf("rxe0, as told: %+v, %v", got, err)
	}
}
