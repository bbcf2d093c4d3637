// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// The rows of the decision table that no machine of the testbed can produce
// (CUDA, mlx5, Grace, swiotlb), as the events that such a machine would send.
// docs/explanation/trace-coverage.md says which rows are real and which are these.

// part is a piece of a mapping.
type part struct {
	kind  placement.Kind
	start uint64
	size  uint64
}

// add counts a part, as the walk does.
func add(t *abi.Tally, p part) {
	k := int(p.kind)
	if t.Bytes[k] == 0 || p.start < t.Low[k] {
		t.Low[k] = p.start
	}
	t.High[k] = max(t.High[k], p.start+p.size)
	t.Bytes[k] += p.size
	t.Entries++
}

// addressed makes the DMA addresses of a mapping, as the walk counts them.
func addressed(parts ...part) func(*abi.Record) {
	return func(w *abi.Record) {
		w.DMA, w.Ranges, w.NRanges = abi.Tally{}, [abi.MaxRanges]abi.Range{}, 0
		for _, p := range parts {
			add(&w.DMA, p)
			if w.NRanges < abi.MaxRanges {
				w.Ranges[w.NRanges] = abi.Range{Start: p.start, Size: p.size}
			}
			w.NRanges++
		}
		w.Nents, w.OrigNents = w.NRanges, w.NRanges
	}
}

// paged gives it pages.
func paged(parts ...part) func(*abi.Record) {
	return func(w *abi.Record) {
		w.Pages = abi.Tally{}
		for _, p := range parts {
			add(&w.Pages, p)
		}
	}
}

// resources are what the exporter handed to dma_map_resource.
func resources(parts ...part) func(*abi.Record) {
	return func(w *abi.Record) {
		w.Res, w.NResources = abi.Tally{}, 0
		for _, p := range parts {
			add(&w.Res, p)
			if w.NResources < abi.MaxResources {
				w.Resources[w.NResources] = abi.Resource{Phys: p.start, Size: p.size}
			}
			w.NResources++
		}
	}
}

// scattered are n pieces of one kind that do not touch.
func scattered(kind placement.Kind, start, size uint64, n int) (list []part) {
	for i := range n {
		list = append(list, part{kind, start + 2*size*uint64(i), size})
	}
	return list
}

const kib = 1 << 10

func cut(w *abi.Record) { w.Have |= abi.HaveWalkCut }

// cuda is NVIDIA's exporter: static, its BAR mapped whatever peer2peer says.
func cuda(w *abi.Record) {
	w.Exporter, w.Owner = [24]byte{}, [24]byte{}
	set(w.Exporter[:], "nvidia")
	set(w.Owner[:], "nvidia")
	w.Have &^= abi.HaveP2P
}

func TestSyntheticVerdicts(t *testing.T) {
	ram := func(size uint64) part { return part{placement.KindRAM, testRAM, size} }
	vram := func(size uint64) part { return part{placement.KindBAR, testBAR, size} }
	grace := func(size uint64) part { return part{placement.KindCoherent, testCoherent, size} }
	iova := func(size uint64) part { return part{placement.KindOther, 0xfff0_0000, size} }
	type bytes map[placement.Kind]uint64
	for _, row := range []struct {
		name   string
		change []func(*abi.Record)
		memory placement.Memory
		proof  placement.Proof
		direct placement.Answer
		places bytes
		words  []string
	}{
		{name: "BAR, no IOMMU", memory: placement.PeerToPeer, proof: placement.DMAAddress, places: bytes{placement.KindBAR: 64 * kib}},
		{name: "silent fallback to RAM", change: []func(*abi.Record){inRAM},
			memory: placement.SystemMemory, proof: placement.DMAAddress, direct: placement.No, places: bytes{placement.KindRAM: 64 * kib}},
		{name: "identity domain", change: []func(*abi.Record){func(w *abi.Record) {
			w.Have |= abi.HaveIOMMU | abi.HaveIOMMUType
			w.Dev.IOMMUType = abi.IOMMUPassThrough
		}},
			memory: placement.PeerToPeer, proof: placement.DMAAddress, places: bytes{placement.KindBAR: 64 * kib}},
		{name: "IOMMU of unknown kind", change: []func(*abi.Record){func(w *abi.Record) { w.Have |= abi.HaveIOMMU }},
			memory: placement.Unknown, words: []string{"whether an IOMMU"}},
		{name: "operations of the device's own (Xen), or windows of the bus", change: []func(*abi.Record){inRAM, func(w *abi.Record) { w.Have |= abi.HaveOtherDMA }},
			memory: placement.Unknown, words: []string{"whether an IOMMU"}},
		{name: "operations of a translating IOMMU", change: []func(*abi.Record){translated, physical, func(w *abi.Record) { w.Have |= abi.HaveOtherDMA }},
			memory: placement.PeerToPeer, proof: placement.PhysicalAddress},
		{name: "only an IOVA", change: []func(*abi.Record){translated}, memory: placement.Unknown, words: []string{"IOMMU translates"}},
		{name: "peer2peer is not proof", change: []func(*abi.Record){translated, func(w *abi.Record) { w.Have |= abi.HaveP2P | abi.HaveAllowP2P }}, memory: placement.Unknown},

		{name: "CUDA: BAR1 under an IOMMU, peer2peer clear", change: []func(*abi.Record){translated, cuda, physical},
			memory: placement.PeerToPeer, proof: placement.PhysicalAddress, places: bytes{placement.KindBAR: 64 * kib}, words: []string{"0000:03:00.0 BAR 1"}},
		{name: "CUDA: more segments than are kept", change: []func(*abi.Record){translated, cuda,
			addressed(scattered(placement.KindOther, 0xfff0_0000, 4*kib, 1000)...), resources(scattered(placement.KindBAR, testBAR, 4*kib, 1000)...)},
			memory: placement.PeerToPeer, proof: placement.PhysicalAddress, places: bytes{placement.KindBAR: 4000 * kib}},
		{name: "CUDA on Grace: pages of coherent memory", change: []func(*abi.Record){translated, cuda, addressed(iova(64 * kib)), paged(grace(64 * kib))},
			memory: placement.CoherentGPUMemory, proof: placement.StructPage, places: bytes{placement.KindCoherent: 64 * kib}, words: []string{"GH200"}},
		{name: "CUDA on Grace, no IOMMU", change: []func(*abi.Record){cuda, addressed(grace(64 * kib))},
			memory: placement.CoherentGPUMemory, proof: placement.DMAAddress, places: bytes{placement.KindCoherent: 64 * kib}},

		{name: "mixed, by address", change: []func(*abi.Record){addressed(vram(48*kib), ram(16*kib))},
			memory: placement.Mixed, proof: placement.DMAAddress, direct: placement.No,
			places: bytes{placement.KindBAR: 48 * kib, placement.KindRAM: 16 * kib}, words: []string{"49152 bytes in 0000:03:00.0 BAR 1", "16384 bytes in RAM"}},
		{name: "mixed, more ranges than are kept", change: []func(*abi.Record){addressed(append(scattered(placement.KindRAM, testRAM, 4*kib, 500), scattered(placement.KindBAR, testBAR, 8*kib, 3)...)...)},
			memory: placement.Mixed, proof: placement.DMAAddress, direct: placement.No,
			places: bytes{placement.KindRAM: 2000 * kib, placement.KindBAR: 24 * kib}, words: []string{"24576 bytes", "2048000 bytes"}},
		{name: "mixed under an IOMMU, resources and pages", change: []func(*abi.Record){translated, addressed(iova(64 * kib)), resources(vram(48 * kib)), paged(ram(16 * kib))},
			memory: placement.Mixed, proof: placement.PhysicalAddress, direct: placement.No,
			places: bytes{placement.KindBAR: 48 * kib, placement.KindRAM: 16 * kib}},
		{name: "resources account for a part, the rest is an IOVA", change: []func(*abi.Record){translated, addressed(iova(64 * kib)), resources(vram(48 * kib))},
			memory: placement.Unknown, words: []string{"49152 bytes"}},

		{name: "bounced: SG_DMA_SWIOTLB", change: []func(*abi.Record){inRAM, func(w *abi.Record) { w.DMAFlags = sgSwiotlb }},
			memory: placement.Bounced, direct: placement.No, words: []string{"SG_DMA_SWIOTLB"}},
		{name: "bounced: addresses beside the pages (6.1 has no flag)", change: []func(*abi.Record){addressed(ram(64 * kib)),
			paged(part{placement.KindRAM, testRAM + 1<<30, 64 * kib}), func(w *abi.Record) { w.Displaced = 64 * kib }},
			memory: placement.Bounced, proof: placement.DMAAddress, direct: placement.No, words: []string{"65536 bytes"}},
		{name: "addresses beside the pages under an IOMMU are IOVAs", change: []func(*abi.Record){translated, addressed(iova(64 * kib)), paged(ram(64 * kib)), func(w *abi.Record) { w.Displaced = 64 * kib }},
			memory: placement.SystemMemory, proof: placement.StructPage, direct: placement.No, places: bytes{placement.KindRAM: 64 * kib}},

		{name: "truncated in RAM", change: []func(*abi.Record){addressed(ram(16 * kib)), cut}, memory: placement.Unknown, words: []string{"first 16384 bytes"}},
		{name: "truncated in VRAM", change: []func(*abi.Record){addressed(vram(16 * kib)), cut}, memory: placement.Unknown, words: []string{"first 16384 bytes"}},
		{name: "truncated behind both kinds", change: []func(*abi.Record){addressed(vram(16*kib), ram(16*kib)), cut},
			memory: placement.Mixed, proof: placement.DMAAddress, direct: placement.No, words: []string{"of its beginning"}},
		{name: "truncated behind both kinds of IOVA", change: []func(*abi.Record){translated, addressed(iova(16 * kib)), cut}, memory: placement.Unknown},
		{name: "a chain that led nowhere", change: []func(*abi.Record){addressed(vram(16 * kib)), func(w *abi.Record) { w.Have |= abi.HaveBadChain }}, memory: placement.Unknown},

		{name: "no room to follow it", change: []func(*abi.Record){func(w *abi.Record) { w.Have |= abi.HaveUntracked }}, memory: placement.Unknown, words: []string{"no room"}},
		{name: "attached, not mapped", change: []func(*abi.Record){func(w *abi.Record) { w.Have &^= abi.HaveMap }}, memory: placement.NotMapped, direct: placement.No},
	} {
		t.Run(row.name, func(t *testing.T) {
			var c clock
			j := testJoiner(10)
			j.handle(made(&c, 1, row.change...))
			p := wantKinds(t, j, Registered)[0].Record.Placement
			if p.Memory != row.memory || row.proof != placement.NoProof && p.Proof != row.proof || p.Direct() != row.direct {
				t.Errorf("%v (proof %v, direct %v), want %v (%v, %v)", p, p.Proof, p.Direct(), row.memory, row.proof, row.direct)
			}
			got := bytes{}
			for _, q := range p.Places {
				got[q.Kind] += q.Bytes
			}
			for kind, n := range row.places {
				if got[kind] != n {
					t.Errorf("%d bytes of %v, want %d: %+v", got[kind], kind, n, p.Places)
				}
			}
			mustHave(t, p.String(), row.words...)
		})
	}
}

// An mlx5 MR on demand: the buffer moves, another thread's page fault maps it
// again, in the end in system memory, or not at all.
func TestSyntheticPageFaults(t *testing.T) {
	var c clock
	j := testJoiner(10)
	w := made(&c, 1, translated, physical)
	j.handle(w)
	r := wantKinds(t, j, Registered)[0].Record
	if r.Importer.Mode != ModeDynamic || r.Importer.Module != "mlx5_ib" || r.Placement.Memory != placement.PeerToPeer {
		t.Errorf("%+v: %v", r.Importer, r.Placement)
	}
	fault := func(change ...func(*abi.Record)) *abi.Record {
		n := remapped(&c, w, change...)
		n.TGID, n.TID = 0, 77 // a kworker
		n.NSteps = 1
		n.Steps[0] = abi.Step{Func: abi.FuncMap, Ret: n.Ret, Time: c.tick()}
		return n
	}
	j.handle(happens(&c, abi.EventMove, w))
	j.handle(happens(&c, abi.EventUnmap, w))
	j.handle(fault(addressed(part{placement.KindOther, 0xfff0_0000, 64 * kib}), resources(), paged(part{placement.KindRAM, testRAM, 64 * kib})))
	j.handle(happens(&c, abi.EventMove, w))
	j.handle(fault(func(w *abi.Record) { w.Ret = -int32(unix.ENOMEM); w.Have &^= abi.HaveMap }))
	events := wantKinds(t, j, Moved, Unmapped, Mapped, Moved, MapRefused)
	for i, want := range []placement.Memory{placement.Stale, placement.NotMapped, placement.SystemMemory, placement.Stale, placement.NotMapped} {
		if p := events[i].Record.Placement; p.Memory != want {
			t.Errorf("%s: %v, want %v", events[i].Kind, p, want)
		}
	}
	last := events[4].Record
	if last.PID != 100 || last.RDMADevice != "mlx5_0" || last.MR == nil || last.Placement.Errno != int(unix.ENOMEM) || last.Moves != 2 {
		t.Errorf("%+v", last)
	}
}

// An mlx5 MR whose attachment was not seen is mapped by a page fault: that it is no MR is not known.
func TestSyntheticPageFaultOfUnseen(t *testing.T) {
	var c clock
	j := testJoiner(10)
	j.handle(remapped(&c, made(&c, 1, translated, physical)))
	if r := wantKinds(t, j, Mapped)[0].Record; r.Use != UseUnknown || r.Importer == nil || r.Importer.Module != "mlx5_ib" {
		t.Errorf("%q, %+v", r.Use, r.Importer)
	}
}

// mlx5's DEVX umem is attached outside of any registration call and has no MR:
// an attachment, which ends with its detachment.
func TestSyntheticDevxUmem(t *testing.T) {
	var c clock
	j := testJoiner(10)
	w := made(&c, 1, func(w *abi.Record) {
		w.Kind, w.ImporterOps, w.ImporterCB = abi.KindAttach, 0x20, 0x21
		w.Have &^= abi.HaveMR | abi.HaveMap | abi.HaveArgs | abi.HaveDriverOp
		w.IBDev = [64]byte{}
	})
	j.handle(w)
	j.handle(happens(&c, abi.EventPin, w))
	j.handle(remapped(&c, w, func(w *abi.Record) { w.Have |= abi.HaveMap }))
	// ib_umem_release calls the function of a revocation. It is none, since the exporter has
	// announced no move.
	j.handle(happens(&c, abi.EventRevoke, w))
	j.handle(happens(&c, abi.EventUnmap, w))
	j.handle(happens(&c, abi.EventUnpin, w))
	j.handle(happens(&c, abi.EventDetach, w))
	events := wantKinds(t, j, Attached, Mapped, Unmapped, Released)
	r := events[1].Record
	if r.Registration() || r.Importer.Mode != ModePinned || !r.Pinned || r.Placement.Memory != placement.PeerToPeer {
		t.Errorf("%+v, pinned %v: %v", r.Importer, r.Pinned, r.Placement)
	}
	if r := events[3].Record; r.Ended != "detached" {
		t.Errorf("ended by %q", r.Ended)
	}
}

// Whatever is lost inside a record's life makes its verdict Unknown, and its
// later mappings too: the lost event may be of any of them.
func TestSyntheticLoss(t *testing.T) {
	for lost := uint32(abi.EventRecord); lost < abi.EventTypes; lost++ {
		if lost == abi.EventExport || lost == abi.EventModule || lost == abi.EventCallers {
			continue // no placement depends on these
		}
		t.Run(eventNames[lost], func(t *testing.T) {
			var c clock
			j := testJoiner(10)
			w := made(&c, 1, translated, physical)
			j.handle(w)
			j.take()
			var before, after [abi.EventTypes]uint64
			after[lost] = 3
			j.lose(lossWords(before, after), uint64(c))
			j.handle(remapped(&c, w))
			j.handle(made(&c, 2, translated, physical))
			events := wantKinds(t, j, Mapped, Registered)
			p := events[0].Record.Placement
			if p.Memory != placement.Unknown {
				t.Errorf("%v", p)
			}
			mustHave(t, p.Reason, "3 "+eventNames[lost])
			if p := events[1].Record.Placement; p.Memory != placement.PeerToPeer {
				t.Errorf("a record younger than the loss: %v", p)
			}
		})
	}
}
