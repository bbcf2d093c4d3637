// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
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
	"github.com/gpurdma/gpurdma/placement"
)

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
		// In parallel: QEMU's engine takes a tenth of a second for each transfer.
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
