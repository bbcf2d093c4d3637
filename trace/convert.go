// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/placement"
)

// Bits of scatterlist.dma_flags, include/linux/scatterlist.h.
const (
	sgBusAddress = 1 << 0
	sgSwiotlb    = 1 << 1
)

// converter turns what the programs sent into public values.
type converter struct {
	boot    time.Time // when CLOCK_MONOTONIC was 0
	machine *machineTable
	symbol  func(addr uint64) symbol
	op      func(cookie uint16) string
	// optional: an importer that pins needs no callback on this kernel (7.1 and
	// later), so one that has a callback can be told to stop.
	optional bool
	// unmoved: no function that tells importers of moves is watched.
	unmoved  bool
	detours  *detours
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

func (c *converter) record(w *wireRecord) Record {
	r := Record{
		ID: w.Head.ID, Call: calls[w.Kind],
		PID: int(w.TGID), TID: int(w.TID), Comm: text(w.Comm[:]), Cgroup: w.Cgroup,
		Start: c.time(w.Start), Duration: time.Duration(w.Head.Time - w.Start), Errno: errnoOf(w.Ret),
		RDMADevice: text(w.IBDev[:]), FD: int(w.FD),
		Offset: w.Offset, Length: w.Length, IOVA: w.IOVA, Access: w.Access,
		ArgsKnown: w.Have&(haveArgs|haveUmemArgs) != 0,
		Pinned:    w.Have&havePin != 0, CPUMapped: w.Have&haveVmap != 0,
		Outside: w.Have&haveOutside != 0,
		Existed: w.Kind == kindInventory, distance: w.Distance, provider: text(w.Provider[:]),
	}
	if r.Existed { // since when is not known
		r.Start, r.Duration = c.time(w.Head.Time), 0
	}
	switch {
	case w.Have&haveDriverOp != 0:
		r.driverOp = placement.Yes
	case w.Have&haveNoDriverOp != 0:
		r.driverOp = placement.No
	}
	if w.Have&haveBuf != 0 {
		r.Buffer = &Buffer{
			Inode: w.Inode, Size: w.Size, Exporter: text(w.Exporter[:]), Driver: text(w.Owner[:]), Movable: w.OpPin != 0,
		}
		r.Buffer.NIC = r.Buffer.Exporter == nicExporter
	}
	if w.Have&haveAttach != 0 || w.Dev.Name[0] != 0 {
		r.Importer = c.importer(w)
	}
	if w.Have&haveMR != 0 {
		r.MR = &MR{Number: w.MRN, LKey: w.LKey, RKey: w.RKey, IOVA: w.MRIOVA, Length: w.MRLength, PD: w.PDN}
	}
	if w.Have&haveArgs == 0 && r.MR != nil { // the call's arguments were hidden; the MR has them
		r.IOVA = r.MR.IOVA // which the core's helper is not given
		if !r.ArgsKnown {
			r.Length = r.MR.Length
		}
	}
	r.Entries, r.Ranges = int(w.Nents), int(w.NRanges)
	r.demoter = demoter(w)
	r.Steps = c.steps(w)
	c.unreachable(&r)
	if w.Have&haveUntracked != 0 {
		r.Incomplete = append(r.Incomplete, "the tracer had no room to follow it")
	}
	return r
}

// unreachable says that the kernel was seen turning peer-to-peer down, and why.
func (c *converter) unreachable(r *Record) {
	exporter := r.provider
	if exporter == "" {
		exporter = "the exporting device"
	}
	i := slices.IndexFunc(r.Steps, func(s Step) bool {
		return s.stage == funcP2PDistance && r.distance < 0 || s.stage == funcP2PType && s.Note == placement.MapTypeNotSupported.String()
	})
	if i < 0 {
		return
	}
	answer := "the kernel does not support peer-to-peer between them"
	if r.Steps[i].stage == funcP2PDistance {
		answer = fmt.Sprintf("distance %d", r.distance)
	}
	r.Unreachable = fmt.Sprintf("%s cannot reach %s: %s", r.importer(), exporter, answer)
	switch {
	case r.Importer == nil:
	case r.Importer.PCI == "":
		r.Unreachable += ", the importer hangs on no PCI bus"
	case r.provider != "":
		if d := c.detours.between(r.Importer.PCI, r.provider); d.why != "" {
			r.Unreachable += ", " + d.why
			r.detour = d.remedy
		}
	}
}

// refusedMap makes a copy of a record tell of the mapping that was refused, and
// not of the call that made the record.
func (c *converter) refusedMap(r *Record, w *wireRecord) {
	r.Errno, r.Steps = errnoOf(w.Ret), c.steps(w)
	r.distance, r.provider = w.Distance, text(w.Provider[:])
	r.Unreachable = ""
	c.unreachable(r)
}

// demoter is another importer of the buffer that may not use peer-to-peer,
// where this one may: exporters that move buffers then keep theirs in system
// memory.
func demoter(w *wireRecord) string {
	if w.NBarred == 0 || w.OpPin == 0 || w.Have&haveP2P == 0 {
		return ""
	}
	name := text(w.Barred[:])
	if w.NBarred > 1 {
		name += fmt.Sprintf(" and %d more", w.NBarred-1)
	}
	return name
}

func (c *converter) importer(w *wireRecord) *Importer {
	i := &Importer{
		Device: text(w.Dev.Name[:]), Bus: text(w.Dev.Bus[:]), PCI: text(w.Dev.PCI[:]),
		IsPCI: w.Dev.PCI[0] != 0 && w.Dev.Depth == 0, IOMMU: c.machine.translation(w).String(),
	}
	if w.Have&haveAttach == 0 {
		return i
	}
	i.PeerAllowed, i.PeerWanted = answer(w.Have&haveP2P != 0), answer(w.Have&haveAllowP2P != 0)
	if w.ImporterOps == 0 {
		i.Mode = ModeStatic
		return i
	}
	ops := c.symbol(w.ImporterOps)
	i.Operations, i.Module = ops.name, ops.module
	cb := c.symbol(w.ImporterCB)
	if i.Module == "" { // operations that were allocated have no name
		i.Module = cb.module
	}
	switch {
	case w.ImporterCB == 0, cb.name == "ib_umem_dmabuf_unsupported_move_notify":
		i.Mode = ModePinned
	case cb.name == "ib_umem_dmabuf_revoke_locked":
		i.Mode = ModeRevocable
	case cb.name != "" && w.Kind != kindInventory: // whether that was pinned was not seen
		i.Mode = ModeDynamic
	}
	if w.Have&havePin != 0 {
		c.pinned(i)
	}
	return i
}

// pinned says what it means that an importer which can be told of moves pins.
func (c *converter) pinned(i *Importer) {
	switch {
	case i == nil || i.Mode != ModeDynamic:
	case c.optional:
		i.Mode = ModeRevocable
	default:
		i.Mode = ModePinned
	}
}

func (c *converter) steps(w *wireRecord) []Step {
	out := make([]Step, 0, len(w.steps()))
	for _, s := range w.steps() {
		st := Step{Function: c.function(w, s), Err: errnoOf(s.Ret), At: time.Duration(s.Time - w.Start), stage: s.Func}
		switch s.Func {
		case funcP2PType:
			st.Note = placement.MapType(s.Arg).String()
		case funcP2PDistance: // what it returns is no errno
			st.Err, st.Note = 0, fmt.Sprintf("distance %d", s.Ret)
		}
		out = append(out, st)
	}
	return out
}

// The kernel functions of a chain. Some have other names on other kernels;
// these are the ones that people look for.
var functionNames = map[uint8]string{
	funcGet: "dma_buf_get", funcAttach: "dma_buf_dynamic_attach", funcPin: "dma_buf_pin",
	funcMap: "dma_buf_map_attachment", funcVmap: "dma_buf_vmap", funcUmemGet: "ib_umem_dmabuf_get",
	funcUmemMap: "ib_umem_dmabuf_map_pages", funcRestrack: "rdma_restrack_add",
	funcPhysVec: "dma_buf_phys_vec_to_sgt", funcP2PType: "pci_p2pdma_map_type",
	funcP2PDistance: "pci_p2pdma_distance_many", funcDMAMapResource: "dma_map_resource",
	funcDMAMapSgtable: "dma_map_sgtable", funcUnmap: "dma_buf_unmap_attachment", funcDetach: "dma_buf_detach",
	funcUmemUnmap: "ib_umem_dmabuf_unmap_pages",
}

func (c *converter) function(w *wireRecord, s wireStep) string {
	switch s.Func {
	case funcHandler:
		return string(calls[w.Kind])
	case funcExporterAttach, funcExporterPin, funcExporterMap:
		if name := c.op(s.Arg); name != "" {
			return name
		}
		return map[uint8]string{funcExporterAttach: "the exporter's attach", funcExporterPin: "the exporter's pin", funcExporterMap: "the exporter's map"}[s.Func]
	}
	return functionNames[s.Func]
}

func counts(t wireTally) (v placement.View) {
	for k := range numKinds {
		v.Counts[k] = placement.Count{Bytes: t.Bytes[k], Low: t.Low[k], High: t.High[k]}
		v.Bytes += t.Bytes[k]
	}
	return v
}

// inputs collects what a record says about its mapping.
func (c *converter) inputs(w *wireRecord) placement.Inputs {
	in := placement.Inputs{
		Mapped:      w.Have&haveMap != 0 && w.Have&haveUnmapped == 0,
		BusFlag:     w.DMAFlags&sgBusAddress != 0,
		SwiotlbFlag: w.DMAFlags&sgSwiotlb != 0,
		Displaced:   w.Displaced, PagesOpaque: w.Opaque,
		MapType:     placement.MapType(w.MapType),
		Reach:       placement.MapType(w.Reach),
		Translation: c.machine.translation(w),
		Exporter:    text(w.Owner[:]),
		Importer:    text(w.Dev.PCI[:]),
		Preexisting: w.Kind == kindInventory,
	}
	if w.Ret < 0 {
		in.Errno = int(-w.Ret)
	} else if c.unmoved && w.ImporterOps != 0 && w.Have&havePin == 0 {
		in.Lost = "moves cannot be seen on this kernel, and this importer allows them"
	}
	if w.Have&haveAttach != 0 {
		in.PeerAllowed = answer(w.Have&haveP2P != 0)
	}
	cut := w.Have&(haveWalkCut|haveBadChain) != 0
	in.DMA = counts(w.DMA)
	in.DMA.Unread, in.DMA.Dropped = cut, w.NRanges > maxRanges
	for _, r := range w.ranges() {
		in.DMA.Ranges = append(in.DMA.Ranges, placement.Range{Start: r.Start, Size: r.Size})
	}
	// Pages are counted and not listed.
	in.Pages = counts(w.Pages)
	in.Pages.Dropped, in.Pages.Unread = true, cut && !in.Pages.Empty()
	in.Resources = counts(w.Res)
	in.Resources.Dropped = w.NResources > maxResources
	for _, r := range w.resources() {
		in.Resources.Ranges = append(in.Resources.Ranges, placement.Range{Start: r.Phys, Size: r.Size})
	}
	return in
}
