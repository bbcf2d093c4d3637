// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

// Bits of scatterlist.dma_flags, include/linux/scatterlist.h.
const (
	sgBusAddress = 1 << 0
	sgSwiotlb    = 1 << 1
)

// converter turns what the programs sent into public values.
type converter struct {
	boot    time.Time // when CLOCK_MONOTONIC was 0
	machine *machine.Table
	symbol  func(addr uint64) symbols.Symbol
	op      func(cookie uint16) string
	// optional: on this kernel (7.1 and later) an importer that pins needs no callback. The
	// exporter can therefore revoke the mapping of an importer that has one.
	optional bool
	// unmoved: no function that tells importers of moves is watched.
	unmoved  bool
	detours  *machine.Detours
	findings *findings
}

func (c *converter) time(ns uint64) time.Time { return c.boot.Add(time.Duration(ns)) }

func errnoOf(ret int32) unix.Errno {
	if ret < 0 {
		return unix.Errno(-ret)
	}
	return 0
}

func answer(yes bool) placement.Answer {
	if yes {
		return placement.Yes
	}
	return placement.No
}

func (c *converter) record(w *abi.Record) Record {
	r := Record{
		ID: w.Head.ID, Call: calls[w.Kind],
		PID: int(w.TGID), TID: int(w.TID), Comm: abi.Text(w.Comm[:]), Cgroup: w.Cgroup,
		Start: c.time(w.Start), Duration: time.Duration(w.Head.Time - w.Start), Errno: errnoOf(w.Ret),
		RDMADevice: abi.Text(w.IBDev[:]), FD: int(w.FD),
		Offset: w.Offset, Length: w.Length, IOVA: w.IOVA, Access: w.Access,
		ArgsKnown: w.Have&(abi.HaveArgs|abi.HaveUmemArgs) != 0,
		Pinned:    w.Have&abi.HavePin != 0, CPUMapped: w.Have&abi.HaveVmap != 0,
		Outside: w.Have&abi.HaveOutside != 0,
		Existed: w.Kind == abi.KindInventory, distance: w.Distance, provider: abi.Text(w.Provider[:]),
	}
	if r.Existed { // its start was not seen
		r.Start, r.Duration = c.time(w.Head.Time), 0
	}
	switch {
	case w.Have&abi.HaveDriverOp != 0:
		r.driverOp = placement.Yes
	case w.Have&abi.HaveNoDriverOp != 0:
		r.driverOp = placement.No
	}
	if w.Have&abi.HaveBuf != 0 {
		r.Buffer = &Buffer{
			Inode: w.Inode, Size: w.Size, Exporter: abi.Text(w.Exporter[:]), Driver: abi.Text(w.Owner[:]), Movable: w.OpPin != 0,
		}
		r.Buffer.NIC = r.Buffer.Exporter == nicExporter
	}
	if w.Have&abi.HaveAttach != 0 || w.Dev.Name[0] != 0 {
		r.Importer = c.importer(w)
	}
	if w.Have&abi.HaveMR != 0 {
		r.MR = &MR{Number: w.MRN, LKey: w.LKey, RKey: w.RKey, IOVA: w.MRIOVA, Length: w.MRLength, PD: w.PDN}
	}
	if w.Have&abi.HaveArgs == 0 && r.MR != nil { // the call's arguments were hidden; the MR has them
		r.IOVA = r.MR.IOVA // the core's helper is not given it
		if !r.ArgsKnown {
			r.Length = r.MR.Length
		}
	}
	r.Entries, r.Ranges = int(w.Nents), int(w.NRanges)
	r.demoter = demoter(w)
	r.Steps = c.steps(w)
	c.unreachable(&r)
	if w.Have&abi.HaveUntracked != 0 {
		r.Incomplete = append(r.Incomplete, "the tracer had no room to follow it")
	}
	return r
}

// unreachable notes in the record that the kernel refused peer-to-peer between the two devices,
// and why.
func (c *converter) unreachable(r *Record) {
	exporter := r.provider
	if exporter == "" {
		exporter = "the exporting device"
	}
	i := slices.IndexFunc(r.Steps, func(s Step) bool {
		return s.stage == abi.FuncP2PDistance && r.distance < 0 || s.stage == abi.FuncP2PType && s.Note == placement.MapTypeNotSupported.String()
	})
	if i < 0 {
		return
	}
	answer := "the kernel does not support peer-to-peer between them"
	if r.Steps[i].stage == abi.FuncP2PDistance {
		answer = fmt.Sprintf("distance %d", r.distance)
	}
	r.Unreachable = fmt.Sprintf("%s cannot reach %s: %s", r.importer(), exporter, answer)
	switch {
	case r.Importer == nil:
	case r.Importer.PCI == "":
		r.Unreachable += ", the importer hangs on no PCI bus"
	case r.provider != "":
		if d := c.detours.Between(r.Importer.PCI, r.provider); d.Why != "" {
			r.Unreachable += ", " + d.Why
			r.detour = d.Remedy
		}
	}
}

// refusedMap puts the errno and the steps of a refused mapping into a copy of the record, in
// place of those of the call that made the record.
func (c *converter) refusedMap(r *Record, w *abi.Record) {
	r.Errno, r.Steps = errnoOf(w.Ret), c.steps(w)
	r.distance, r.provider = w.Distance, abi.Text(w.Provider[:])
	r.Unreachable = ""
	c.unreachable(r)
}

// demoter is another importer of the buffer that may not use peer-to-peer,
// where this one may: exporters that move buffers then keep theirs in system
// memory.
func demoter(w *abi.Record) string {
	if w.NBarred == 0 || w.OpPin == 0 || w.Have&abi.HaveP2P == 0 {
		return ""
	}
	name := abi.Text(w.Barred[:])
	if w.NBarred > 1 {
		name += fmt.Sprintf(" and %d more", w.NBarred-1)
	}
	return name
}

func (c *converter) importer(w *abi.Record) *Importer {
	i := &Importer{
		Device: abi.Text(w.Dev.Name[:]), Bus: abi.Text(w.Dev.Bus[:]), PCI: abi.Text(w.Dev.PCI[:]),
		IsPCI: w.Dev.PCI[0] != 0 && w.Dev.Depth == 0, IOMMU: c.machine.Translation(w).String(),
	}
	if w.Have&abi.HaveAttach == 0 {
		return i
	}
	i.PeerAllowed, i.PeerWanted = answer(w.Have&abi.HaveP2P != 0), answer(w.Have&abi.HaveAllowP2P != 0)
	if w.ImporterOps == 0 {
		i.Mode = ModeStatic
		return i
	}
	ops := c.symbol(w.ImporterOps)
	i.Operations, i.Module = ops.Name, ops.Module
	cb := c.symbol(w.ImporterCB)
	if i.Module == "" { // operations that were allocated have no name
		i.Module = cb.Module
	}
	switch {
	case w.ImporterCB == 0, cb.Name == "ib_umem_dmabuf_unsupported_move_notify":
		i.Mode = ModePinned
	case cb.Name == "ib_umem_dmabuf_revoke_locked":
		i.Mode = ModeRevocable
	case cb.Name != "" && w.Kind != abi.KindInventory: // whether that was pinned was not seen
		i.Mode = ModeDynamic
	}
	if w.Have&abi.HavePin != 0 {
		c.pinned(i)
	}
	return i
}

// pinned sets the mode of an importer that has a callback for moves, and pins.
func (c *converter) pinned(i *Importer) {
	switch {
	case i == nil || i.Mode != ModeDynamic:
	case c.optional:
		i.Mode = ModeRevocable
	default:
		i.Mode = ModePinned
	}
}

// use is the purpose of a record's attachment. callers are known where the RDMA core made the
// attachment, unless they were lost.
func (c *converter) use(w *abi.Record, i *Importer, callers []string) Use {
	switch {
	case registration(w.Kind):
		return UseMR
	case len(callers) > 0:
		return useOf(callers)
	case w.Kind == abi.KindInventory, w.Kind == abi.KindMap: // its attachment was not seen: a driver with operations of its own may have made an MR of it
		if u := useOfImporter(i); u != UseOther {
			return u
		}
		return UseUnknown
	case w.Kind == abi.KindUmem: // its callers were lost: it may be a registration that began before the tracer
		return UseUnknown
	}
	return useOfImporter(i)
}

func (c *converter) steps(w *abi.Record) []Step {
	out := make([]Step, 0, len(w.SentSteps()))
	for _, s := range w.SentSteps() {
		st := Step{Function: c.function(w, s), Err: errnoOf(s.Ret), At: time.Duration(s.Time - w.Start), stage: s.Func}
		switch s.Func {
		case abi.FuncP2PType:
			st.Note = placement.MapType(s.Arg).String()
		case abi.FuncP2PDistance: // returns a distance, not an errno
			st.Err, st.Note = 0, fmt.Sprintf("distance %d", s.Ret)
		}
		out = append(out, st)
	}
	return out
}

// functionNames are the kernel functions of a chain. Some have other names on some kernels;
// these are the best known ones.
var functionNames = map[uint8]string{
	abi.FuncGet: "dma_buf_get", abi.FuncAttach: "dma_buf_dynamic_attach", abi.FuncPin: "dma_buf_pin",
	abi.FuncMap: "dma_buf_map_attachment", abi.FuncVmap: "dma_buf_vmap", abi.FuncUmemGet: "ib_umem_dmabuf_get",
	abi.FuncUmemMap: "ib_umem_dmabuf_map_pages", abi.FuncRestrack: "rdma_restrack_add",
	abi.FuncPhysVec: "dma_buf_phys_vec_to_sgt", abi.FuncP2PType: "pci_p2pdma_map_type",
	abi.FuncP2PDistance: "pci_p2pdma_distance_many", abi.FuncDMAMapResource: "dma_map_resource",
	abi.FuncDMAMapSgtable: "dma_map_sgtable", abi.FuncUnmap: "dma_buf_unmap_attachment", abi.FuncDetach: "dma_buf_detach",
	abi.FuncUmemUnmap: "ib_umem_dmabuf_unmap_pages",
}

func (c *converter) function(w *abi.Record, s abi.Step) string {
	switch s.Func {
	case abi.FuncHandler:
		return string(calls[w.Kind])
	case abi.FuncExporterAttach, abi.FuncExporterPin, abi.FuncExporterMap:
		if name := c.op(s.Arg); name != "" {
			return name
		}
		return map[uint8]string{abi.FuncExporterAttach: "the exporter's attach", abi.FuncExporterPin: "the exporter's pin", abi.FuncExporterMap: "the exporter's map"}[s.Func]
	}
	return functionNames[s.Func]
}

func counts(t abi.Tally) (v placement.View) {
	for k := range abi.NumKinds {
		v.Counts[k] = placement.Count{Bytes: t.Bytes[k], Low: t.Low[k], High: t.High[k]}
		v.Bytes += t.Bytes[k]
	}
	return v
}

// inputs collects the evidence that a record has of its mapping.
func (c *converter) inputs(w *abi.Record) placement.Inputs {
	in := placement.Inputs{
		Mapped:      w.Have&abi.HaveMap != 0 && w.Have&abi.HaveUnmapped == 0,
		BusFlag:     w.DMAFlags&sgBusAddress != 0,
		SwiotlbFlag: w.DMAFlags&sgSwiotlb != 0,
		Displaced:   w.Displaced, PagesOpaque: w.Opaque,
		MapType:     placement.MapType(w.MapType),
		Reach:       placement.MapType(w.Reach),
		Translation: c.machine.Translation(w),
		Exporter:    abi.Text(w.Owner[:]),
		Importer:    abi.Text(w.Dev.PCI[:]),
		Preexisting: w.Kind == abi.KindInventory,
	}
	if w.Ret < 0 {
		in.Errno = int(-w.Ret)
	} else if c.unmoved && w.ImporterOps != 0 && w.Have&abi.HavePin == 0 {
		in.Lost = "moves cannot be seen on this kernel, and this importer allows them"
	}
	if w.Have&abi.HaveAttach != 0 {
		in.PeerAllowed = answer(w.Have&abi.HaveP2P != 0)
	}
	cut := w.Have&(abi.HaveWalkCut|abi.HaveBadChain) != 0
	in.DMA = counts(w.DMA)
	in.DMA.Unread, in.DMA.Dropped = cut, w.NRanges > abi.MaxRanges
	for _, r := range w.SentRanges() {
		in.DMA.Ranges = append(in.DMA.Ranges, placement.Range{Start: r.Start, Size: r.Size})
	}
	// Pages are counted and not listed.
	in.Pages = counts(w.Pages)
	in.Pages.Dropped, in.Pages.Unread = true, cut && !in.Pages.Empty()
	in.Resources = counts(w.Res)
	in.Resources.Dropped = w.NResources > abi.MaxResources
	for _, r := range w.SentResources() {
		in.Resources.Ranges = append(in.Resources.Ranges, placement.Range{Start: r.Phys, Size: r.Size})
	}
	return in
}
