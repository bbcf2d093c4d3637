// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"bytes"
	"context"
	"crypto/rand"
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

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/placement"
)

// The prediction equals the kernel's decision for any two functions, and the outcome for each
// behaviour of the software GPU and each kind of importer: the distance, the answers of attach and
// map, the kind of addresses, and the bytes that a DMA engine moves.
//
//testbed:machine fabric fabric+EPYC fabric+Nehalem fabric+EPYC+iommu fabric+EPYC+pt fabric+EPYC+iommu+noredir fabric+Skylake-Server+iommu
//testbed:kernel 7.2
func TestVMDecision(t *testing.T) { decisionTable(t) }

// The same where the kernel is built without peer-to-peer.
//
//testbed:machine fabric+EPYC
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
func functions(t *testing.T) []machine.Addr {
	t.Helper()
	links, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	var out []machine.Addr
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
	distance := func(from machine.Addr, to string) int {
		n, err := b.imp.Distance(from.String(), to)
		if err != nil {
			t.Fatalf("%v to %s: %v", from, to, err)
		}
		ways[n]++
		return n
	}
	compare := func(from machine.Addr, to *machine.Addr, want int) p2pdma.Decision {
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
			a, err1 := machine.ParseAddr(filepath.Base(from))
			b, err2 := machine.ParseAddr(filepath.Base(to))
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
func device(t *testing.T, name string) machine.Addr {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/run/gpurdma/pci/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return machinetest.Addr(t, filepath.Base(dir))
}

// importers are the machine's devices to attach for, and soft.
func importers(t *testing.T) map[string]*machine.Addr {
	t.Helper()
	out := map[string]*machine.Addr{testenv.SoftDevice: nil}
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

// variant is one way in which the software GPU exports.
type variant struct {
	name  string
	class drivers.Class
	place string // for gpualloc
	pin   string // pin_rule; "" is that of the kernel's own drivers
	open  bool   // nvidia: no gate
}

// variants are the ways in which the software GPU exports.
var variants = []variant{
	{name: "amdgpu", class: drivers.ClassAMDGPU, place: "/vram"},
	{name: "amdgpu pinning in system memory", class: drivers.ClassAMDGPU, place: "/vram", pin: "system"},
	{name: "xe", class: drivers.ClassXe, place: "/vram"},
	{name: "xe in VRAM only", class: drivers.ClassXe, place: "/vram-only"},
	{name: "i915", class: drivers.ClassI915, place: "/vram"},
	{name: "i915 in VRAM only", class: drivers.ClassI915, place: "/vram-only"},
	{name: "nvidia", class: drivers.ClassNVIDIA, place: "/vram"},
	{name: "nvidia without gate", class: drivers.ClassNVIDIA, place: "/vram", open: true},
	{name: "nvidia-coherent", class: drivers.ClassNVIDIACoherent, place: "/vram"},
	{name: "vfio", class: drivers.ClassVFIO, place: "/vram"},
}

// setFile writes a file of sysfs, and puts back what it had.
func setFile(t *testing.T, name, text string) {
	t.Helper()
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text []byte) {
		if err := os.WriteFile(name, text, 0); err != nil {
			t.Error(err)
		}
	}
	put([]byte(text))
	t.Cleanup(func() { put(old) })
}

func (b bench) behaviour(t *testing.T, v variant) {
	if v.open {
		setFile(t, "/sys/module/softgpu/parameters/topology_gate", "N")
	}
	for _, g := range b.gpus {
		g.Set(t, "behaviour", v.class.String())
		e, err := drivers.ExporterOf(b.m, machinetest.Addr(t, g.PCI))
		if err != nil || e.Class != v.class {
			t.Fatalf("%s: %+v, %v", g.Name, e, err)
		}
		if v.pin != "" {
			g.Set(t, "pin_rule", v.pin)
			defer g.Set(t, "pin_rule", map[drivers.PinRule]string{drivers.PinInSystem: "system", drivers.PinInVRAM: "vram"}[e.Pin])
			if e, err = drivers.ExporterOf(b.m, machinetest.Addr(t, g.PCI)); err != nil {
				t.Fatal(err)
			}
		}
		e.VRAMOnly = v.place == "/vram-only"
		alloc, err := gpualloc.Open("drm:"+g.PCI+v.place, gpualloc.Env{})
		if err != nil {
			t.Fatal(err)
		}
		// At once: QEMU's engine takes a tenth of a second for each transfer.
		var wg sync.WaitGroup
		for name, a := range importers(t) {
			r := row{bench: b, e: e, gpu: g, device: name, i: drivers.Importer{PCI: a}}
			r.imp = b.imp.Another(t)
			wg.Go(func() { r.kinds(t, alloc) })
		}
		wg.Wait()
		if err := alloc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// row is an import.
type row struct {
	bench
	e      drivers.Exporter
	gpu    testenv.SoftGPU
	device string
	i      drivers.Importer
}

const rowSize = 256 << 10

// kinds are the imports by the row's device.
func (r row) kinds(t *testing.T, alloc gpualloc.Allocator) {
	for kind := drivers.Static; kind <= drivers.Dynamic; kind++ {
		for _, peer := range []bool{true, false} {
			if peer && kind == drivers.Static || r.few && (kind != drivers.Dynamic || !peer) {
				continue
			}
			r.i.Kind, r.i.PeerToPeer = kind, peer
			if err := r.run(t, alloc); err != nil {
				t.Errorf("%s to %s, %v, peer to peer %v: %v", r.gpu.Name, r.device, kind, peer, err)
			}
		}
	}
}

func (r row) run(t *testing.T, alloc gpualloc.Allocator) (err error) {
	p := drivers.Predict(r.m, r.e, r.i)
	buf, err := alloc.Alloc(context.Background(), rowSize, gpualloc.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	var a *testenv.Attachment
	device := testenv.SoftDevice
	if r.i.PCI != nil {
		device = r.i.PCI.String()
	}
	var attachErr error
	err = buf.Segments()[0].Buf.Do(func(fd int) error {
		a, attachErr = r.imp.Attach(device, fd, testenv.ImporterKind(r.i.Kind-drivers.Static), r.i.PeerToPeer)
		return nil
	})
	if err != nil {
		return err
	}
	// The version of a distribution's kernel does not tell its patches, so that the prediction may be
	// unknown. Debian's kernels have to be known.
	unnamed := p.Outcome == chain.OutcomeUnknown && r.m.Kernel.Backports()
	if attachErr != nil {
		if unnamed {
			return nil
		}
		stage := chain.StageAttach
		if p.Stage == chain.StageMap && r.mapsInAttach() {
			stage = chain.StageMap
		}
		return r.refused(p, stage, attachErr)
	}
	defer func() { err = errors.Join(err, a.Detach()) }()
	if c := r.e.Class; c == drivers.ClassAMDGPU || c == drivers.ClassXe {
		if want := r.i.PeerToPeer && p.Decision.Supported == placement.Yes; a.Peer2Peer != want {
			return fmt.Errorf("the exporter left peer2peer %v; predicted %v", a.Peer2Peer, p)
		}
	}
	segments, mapErr := a.Map()
	if unnamed {
		return nil
	}
	if mapErr != nil {
		return r.refused(p, chain.StageMap, mapErr)
	}
	if err := r.mapped(t, p, buf, segments); err != nil {
		return fmt.Errorf("%w; predicted %v", err, p)
	}
	return r.move(p, buf, a)
}

// mapsInAttach: up to 6.12 the core maps exporters without pin so.
func (r row) mapsInAttach() bool {
	return (r.e.Class == drivers.ClassNVIDIA || r.e.Class == drivers.ClassVFIO) && r.m.Kernel.Version.Cmp(machine.V6_12) <= 0
}

func (r row) refused(p drivers.Prediction, s chain.Stage, got error) error {
	var e unix.Errno
	if !errors.As(got, &e) || p.Outcome != chain.Refused || p.Errno != e || p.Stage != s {
		return fmt.Errorf("%s answered %w; predicted %v", s, got, p)
	}
	r.seen.add("refused " + errno.Name(e) + " " + string(s))
	return nil
}

// mapped looks where the addresses lead.
func (r row) mapped(t *testing.T, p drivers.Prediction, buf *gpualloc.Buffer, segments []testenv.ImporterSegment) error {
	where := r.gpu.Buffer(t, buf.Segments()[0].Buf.Inode())
	place := where["place"]
	offset, _ := strconv.ParseUint(where["offset"], 0, 64)
	bar, ok := pci.LargestBAR(r.m.Sys, *r.e.PCI)
	if !ok || len(segments) == 0 {
		return fmt.Errorf("BAR %v, %d segments", bar, len(segments))
	}
	inVRAM := r.e.Class != drivers.ClassNVIDIACoherent // whose stand-in are pages of the system
	switch {
	case p.Outcome == chain.Direct && inVRAM && place != "vram", p.Outcome == chain.Staged && place != "system", p.Outcome != chain.Direct && p.Outcome != chain.Staged:
		return fmt.Errorf("mapped, and the buffer is in %q", place)
	}
	at := bar.Start + offset // where its next byte is, if it is in VRAM
	for _, s := range segments {
		inBAR := s.Addr >= bar.Start && s.Addr-bar.Start < bar.Size
		page := s.Flags&testenv.SegmentPage != 0
		good := false
		switch {
		case p.Address == drivers.AddressUnknown:
		case p.Outcome == chain.Direct && inVRAM && p.Address == drivers.AddressIOVA:
			good = !page && !inBAR
		case p.Outcome == chain.Direct && inVRAM:
			good = !page && s.Addr == at
		case p.Address == drivers.AddressIOVA:
			good = !inBAR && (!page || s.Addr != s.Phys)
		default:
			good = !inBAR && page && s.Addr == s.Phys
		}
		if !good {
			return fmt.Errorf("segment %+v of a buffer in %s, whose BAR is %#x, at %#x: not %v", s, place, bar.Start, offset, p.Address)
		}
		at += s.Length
	}
	r.seen.add(p.Outcome.String() + " " + p.Address.String())
	return nil
}

// move lets the DMA engine use the addresses, for one kind of importer a
// behaviour. QEMU's switches hand all traffic to the IOMMU, so a bus address
// leads nowhere where that translates.
func (r row) move(p drivers.Prediction, buf *gpualloc.Buffer, a *testenv.Attachment) error {
	kinds := map[drivers.Class]drivers.Kind{
		drivers.ClassAMDGPU: drivers.Pinned, drivers.ClassXe: drivers.Dynamic, drivers.ClassI915: drivers.Static, drivers.ClassNVIDIA: drivers.Dynamic, drivers.ClassNVIDIACoherent: drivers.Pinned, drivers.ClassVFIO: drivers.Revocable,
	}
	kind, ok := kinds[r.e.Class]
	if !ok || kind != r.i.Kind || (kind != drivers.Static) != r.i.PeerToPeer || !strings.HasPrefix(r.device, "edu") {
		return nil
	}
	if t, _ := r.m.TranslationOf(r.i.PCI); p.Address == drivers.AddressBus && t == machine.Translated {
		return nil
	}
	data, got := make([]byte, 512), make([]byte, 512)
	rand.Read(data)
	at := int64(rowSize - os.Getpagesize() + 64)
	if err := a.Write(data, uint64(at)); err != nil {
		return fmt.Errorf("the engine's write: %w", err)
	}
	if _, err := buf.ReadAt(got, at); err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("what the engine wrote to the %v of a %v buffer is not there: %w", p.Address, p.Outcome, err)
	}
	rand.Read(data)
	if _, err := buf.WriteAt(data, at); err != nil {
		return err
	}
	if err := a.Read(got, uint64(at)); err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("what the engine reads from the %v of a %v buffer is something else: %w", p.Address, p.Outcome, err)
	}
	r.seen.add("moved by " + p.Address.String())
	r.seen.add(movedFor(r.e.Class))
	return nil
}

// movedFor counts transfers by a DMA engine for an exporter.
func movedFor(c drivers.Class) string { return "moved, " + c.String() }
