// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// A machine with a GPU's BAR and some RAM, for sequences of events that no
// virtual machine produces: CUDA, mlx5, IOMMUs.
const (
	testBAR      = 0x38_0000_0000
	testRAM      = 0x1_0000_0000
	testCoherent = 0x40_0000_0000
)

func testJoiner(max int) *joiner {
	m := &placement.Machine{
		BARs: []placement.BAR{{Device: "0000:03:00.0", Index: 1, GPU: true, Range: placement.Range{Start: testBAR, Size: 1 << 34}}},
		RAM:  []placement.Range{{Start: testRAM, Size: 1 << 36}},
		Coherent: []placement.Coherent{{
			Name: "NVIDIA GH200 memory", Range: placement.Range{Start: testCoherent, Size: 96 << 30},
		}},
	}
	names := map[uint64]symbols.Symbol{
		0x10: {Name: "mlx5_ib_dmabuf_attach_ops", Module: "mlx5_ib"}, 0x11: {Name: "mlx5_ib_dmabuf_invalidate_cb", Module: "mlx5_ib"},
		0x20: {Name: "ib_umem_dmabuf_attach_pinned_ops", Module: "ib_uverbs"}, 0x21: {Name: "ib_umem_dmabuf_unsupported_move_notify", Module: "ib_uverbs"},
		0x31: {Name: "ib_umem_dmabuf_revoke_locked", Module: "ib_core"},
	}
	return newJoiner(&converter{
		boot: time.Unix(0, 0), machine: machine.Of(m),
		symbol:  func(a uint64) symbols.Symbol { return names[a] },
		detours: machine.NewDetours("/nonexistent"),
		op: func(c uint16) string { // "" for a number without a function, as that of a tracer
			return map[uint16]string{1: "amdgpu_dma_buf_pin", 2: "xe_dma_buf_map"}[c]
		},
	}, max)
}

func set(dst []byte, s string) { copy(dst, s) }

// clock gives every event a later time.
type clock uint64

func (c *clock) tick() uint64 { *c += 10; return uint64(*c) }

// made is a registration that went well.
func made(c *clock, id uint64, change ...func(*abi.Record)) *abi.Record {
	w := &abi.Record{
		Start: c.tick(), Kind: abi.KindRegDMABuf, TGID: 100, TID: 101, FD: 7, Length: 0x10000,
		Have:   abi.HaveArgs | abi.HaveFD | abi.HaveBuf | abi.HaveAttach | abi.HaveMap | abi.HaveMR | abi.HaveDriverOp,
		DMABuf: 0xb000 + id<<16, Inode: 1000 + id, Size: 0x10000,
		Attach: 0xa000 + id<<16, ImporterOps: 0x10, ImporterCB: 0x11, SGT: 0xc000 + id<<16,
		Nents: 1, OrigNents: 1, NRanges: 1, MR: 0xd000 + id<<16, LKey: uint32(id) << 8, RKey: uint32(id)<<8 | 1, MRLength: 0x10000,
	}
	w.MappedAt = c.tick()
	w.Head = abi.Head{Type: abi.EventRecord, ID: id, Time: c.tick()}
	set(w.IBDev[:], "mlx5_0")
	set(w.Exporter[:], "amdgpu")
	set(w.Owner[:], "amdgpu")
	set(w.Dev.Name[:], "0000:05:00.0")
	set(w.Dev.PCI[:], "0000:05:00.0")
	inBAR(w)
	for _, f := range change {
		f(w)
	}
	return w
}

func dmaIs(w *abi.Record, kind int, start uint64) {
	w.DMA = abi.Tally{Entries: 1}
	w.DMA.Bytes[kind], w.DMA.Low[kind], w.DMA.High[kind] = 0x10000, start, start+0x10000
	w.Ranges[0] = abi.Range{Start: start, Size: 0x10000}
}

func inBAR(w *abi.Record) { dmaIs(w, int(placement.KindBAR), testBAR) }
func inRAM(w *abi.Record) { dmaIs(w, int(placement.KindRAM), testRAM) }

// translated puts the mapping behind an IOMMU.
func translated(w *abi.Record) {
	dmaIs(w, int(placement.KindOther), 0xfff0_0000)
	w.Have |= abi.HaveIOMMU | abi.HaveIOMMUType
	w.Dev.IOMMUType = abi.IOMMUPaging
}

// physical is what dma_map_resource was given.
func physical(w *abi.Record) {
	w.NResources = 1
	w.Resources[0] = abi.Resource{Phys: testBAR, DMA: w.Ranges[0].Start, Size: 0x10000}
	k := int(placement.KindBAR)
	w.Res.Bytes[k], w.Res.Low[k], w.Res.High[k] = 0x10000, testBAR, testBAR+0x10000
}

func happens(c *clock, typ uint32, w *abi.Record) *abi.Event {
	return &abi.Event{
		Head: abi.Head{Type: typ, ID: w.Head.ID, Time: c.tick()}, Object: w.Attach, DMABuf: w.DMABuf, Inode: w.Inode,
	}
}

// remapped is a mapping of the same attachment.
func remapped(c *clock, w *abi.Record, change ...func(*abi.Record)) *abi.Record {
	n := *w
	n.Kind, n.Start, n.MappedAt = abi.KindMap, c.tick(), c.tick()
	n.Head.Time = c.tick()
	for _, f := range change {
		f(&n)
	}
	return &n
}

func verdictOf(t *testing.T, j *joiner, id uint64) placement.Memory {
	t.Helper()
	e := j.live[id]
	if e == nil {
		t.Fatalf("record %d does not live", id)
	}
	return j.decide(e.in).Memory
}

func kindsOf(events []Event) string {
	var kinds []EventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return fmt.Sprint(kinds)
}

func wantKinds(t *testing.T, j *joiner, want ...EventKind) []Event {
	t.Helper()
	events := j.take()
	if got := kindsOf(events); got != fmt.Sprint(want) {
		t.Fatalf("events %s, want %v", got, want)
	}
	return events
}
