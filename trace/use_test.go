// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"testing"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/symbols"
)

func TestUseOf(t *testing.T) {
	below := []string{"bpf_trampoline_6442", "ib_umem_dmabuf_get_with_dma_device [ib_core]", "ib_umem_get_desc [ib_core]"}
	for name, want := range map[string]Use{
		"ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE [ib_uverbs]":        UseCQ,
		"ib_uverbs_handler_UVERBS_METHOD_QP_CREATE [ib_uverbs]":        UseQP,
		"ib_uverbs_handler_UVERBS_METHOD_SRQ_CREATE":                   UseSRQ,
		"ib_uverbs_handler_UVERBS_METHOD_WQ_CREATE.cold [ib_uverbs]":   UseWQ,
		"ib_uverbs_handler_UVERBS_METHOD_COMP_CNTR_CREATE [ib_uverbs]": UseCompletionCounter,
		"mlx5_ib_handler_MLX5_IB_METHOD_DEVX_UMEM_REG [mlx5_ib]":       UseDEVXUmem,
		"ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR [ib_uverbs]":    UseMR,
		"ib_uverbs_handler_UVERBS_METHOD_REG_MR [ib_uverbs]":           UseMR,
		"ib_uverbs_rereg_mr [ib_uverbs]":                               UseMR,
		"ib_uverbs_ex_create_cq.isra.0 [ib_uverbs]":                    UseCQ,
		"other_handler_OTHER_METHOD_UVERBS_METHOD_CQ_CREATE [other]":   UseRDMA,
		"ib_uverbs_handler_UVERBS_METHOD_DM_ALLOC [ib_uverbs]":         UseRDMA,
		"__x64_sys_ioctl": UseRDMA,
	} {
		if got := useOf(append(below[:len(below):len(below)], name, "ib_uverbs_run_method [ib_uverbs]")); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestUseOfImporter(t *testing.T) {
	for _, c := range []struct {
		operations, module string
		want               Use
	}{
		{"", "", UseUnknown},
		{"iopt_dmabuf_attach_revoke_ops", "iommufd", UseIOMMUFD},
		{"iopt_dmabuf_attach_revoke_ops", "", UseIOMMUFD},
		{"vfio_ops", "vfio_pci_core", UseVFIO},
		{"ib_umem_dmabuf_attach_pinned_ops", "ib_core", UseUnknown},
		{"ib_umem_dmabuf_attach_pinned_ops", "ib_uverbs", UseUnknown},
		{"amdgpu_dma_buf_attach_ops", "amdgpu", UseOther},
	} {
		if got := useOfImporter(&Importer{Operations: c.operations, Module: c.module}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := useOfImporter(nil); got != UseUnknown {
		t.Errorf("nobody: %q", got)
	}
}

// umem is an attachment by the RDMA core outside of registrations.
func umem(w *abi.Record) {
	w.Kind = abi.KindUmem
	w.Have &^= abi.HaveMR | abi.HaveMap | abi.HaveArgs | abi.HaveDriverOp
	w.Have |= abi.HaveUmemArgs
}

func calledBy(w *abi.Record, names ...string) *abi.Callers {
	c := &abi.Callers{Event: abi.Event{Head: abi.Head{Type: abi.EventCallers, ID: w.Head.ID, Time: w.Start}}}
	for i, name := range names {
		set(c.Name[i][:], name)
	}
	return c
}

// A CQ's buffer is an attachment with a name, and no key or inode finds it as an MR.
func TestSyntheticCQBuffer(t *testing.T) {
	var c clock
	j := testJoiner(10)
	cq := made(&c, 1, umem)
	j.handle(calledBy(cq, "ib_umem_get_cq_buf [ib_core]", "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE [ib_uverbs]"))
	j.handle(cq)
	j.handle(remapped(&c, cq, func(w *abi.Record) { w.Have |= abi.HaveMap }))
	for _, e := range wantKinds(t, j, Attached, Mapped) {
		r := e.Record
		if r.Use != UseCQ || r.Registration() || r.Call != Attachment || r.RDMADevice != "mlx5_0" || r.Length != 0x10000 {
			t.Errorf("%v: %+v", e.Kind, r)
		}
		mustHave(t, r.String(), "attach for the buffer of a CQ", "on mlx5_0")
	}
	if e := j.find(placement.Key{Inode: cq.Inode}); e != nil {
		t.Errorf("found as an MR: %v", &e.rec)
	}
	// An MR of the same buffer is found, and not the CQ's.
	mr := made(&c, 2, func(w *abi.Record) { w.DMABuf, w.Inode = cq.DMABuf, cq.Inode })
	j.handle(mr)
	if e := j.find(placement.Key{Inode: cq.Inode}); e == nil || e.rec.ID != 2 || e.rec.Use != UseMR {
		t.Errorf("found %+v", e)
	}
	if len(j.called) != 0 {
		t.Errorf("callers of %d records are kept", len(j.called))
	}
}

// Whose callers were lost may be an MR's; nothing is said of it. Those of records that
// do not come are not kept for ever.
func TestSyntheticCallersLost(t *testing.T) {
	var c clock
	j := testJoiner(10)
	j.handle(made(&c, 1, umem))
	if r := wantKinds(t, j, Attached)[0].Record; r.Use != UseUnknown {
		t.Errorf("%q", r.Use)
	}
	for id := range uint64(3 * maxEarly) {
		j.handle(calledBy(made(&c, 2+id, umem), "f"))
	}
	if len(j.called) > maxEarly {
		t.Errorf("callers of %d records", len(j.called))
	}
}

// An attachment from before the tracer is no MR if iommufd made it. If the RDMA core made it, it
// may be an MR.
func TestSyntheticFoundImporters(t *testing.T) {
	for ops, want := range map[symbols.Symbol]Use{
		{Name: "iopt_dmabuf_attach_revoke_ops", Module: "iommufd"}:    UseIOMMUFD,
		{Name: "ib_umem_dmabuf_attach_pinned_ops", Module: "ib_core"}: UseUnknown,
		{Name: "mlx5_ib_dmabuf_attach_ops", Module: "mlx5_ib"}:        UseUnknown,
	} {
		var c clock
		j := testJoiner(10)
		j.conv.symbol = func(uint64) symbols.Symbol { return ops }
		w := made(&c, existedBit|1, func(w *abi.Record) { w.Kind = abi.KindInventory; w.Have &^= abi.HaveMR | abi.HaveMap })
		j.handle(w)
		if r := wantKinds(t, j, Existing)[0].Record; r.Use != want {
			t.Errorf("%s: %q, want %q", ops.Name, r.Use, want)
		}
		if e := j.find(placement.Key{Inode: w.Inode}); (e != nil) != (want == UseUnknown) {
			t.Errorf("%s: found %v", ops.Name, e)
		}
	}
}
