// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/refusal"
)

// noMethod explains EPROTONOSUPPORT: of the method, or of an attribute that the
// kernel's ib_uverbs does not know.
func (ev *Evidence) noMethod(e *Refusal) *Refusal {
	e.Latest = fault.StageUverbs
	switch {
	case ev.Probe == unix.EPROTONOSUPPORT:
		detail, remedy := ev.Machine.NoMethod()
		return e.proven(fault.StageUverbs, fault.CauseNoMethod, detail, remedy)
	case ev.Probe == unix.EBADF && ev.ByProvider:
		e.Cause, e.Detail = fault.CauseUnknown, "the kernel has REG_DMABUF_MR, and does not know an attribute that libibverbs passes with it"
		e.Remedy = "allow the ioctl route, which passes none, or use RDMA modules and a libibverbs of one release"
	default:
		e.Cause, e.Detail = fault.CauseUnknown, "the kernel refused REG_DMABUF_MR or an attribute of it; with descriptor -1 it answered "+answerName(ev.Probe)
		e.Remedy = seeLog
	}
	return e
}

// answerName names a probe's answer; 0 is success.
func answerName(n unix.Errno) string {
	if n == 0 {
		return "with success"
	}
	return errno.Name(n)
}

func (ev *Evidence) noProviderOp(e *Refusal, detail string) *Refusal {
	remedy := "allow the ioctl route, which asks the kernel directly, or install a newer rdma-core"
	if !ev.Support.KernelTakes() {
		remedy = "install a newer rdma-core"
	}
	return e.proven(fault.StageProvider, fault.CauseNoProviderOp, detail, remedy)
}

// notSupported tells the meanings of EOPNOTSUPP apart.
func (ev *Evidence) notSupported(e *Refusal) *Refusal {
	s := ev.Support
	switch {
	case ev.ByProvider && s.ProviderLacks():
		return ev.noProviderOp(e, "libibverbs' provider for this device has no reg_dmabuf_mr; the kernel has")
	case s.Kernel == unix.EPROTONOSUPPORT:
		e.Cause, e.Latest = fault.CauseNoMethod, fault.StageUverbs
		e.Detail, e.Remedy = ev.Machine.NoMethod()
		return e
	case s.Kernel == unix.EOPNOTSUPP:
		// Also with fd -1: refused before any buffer was looked at.
		e.Cause, e.Latest = fault.CauseNoDriverOp, fault.StageUverbs
		e.Detail, e.Remedy = NoDriverOp(ev.Driver, ev.Machine)
		return e
	case ev.Probe == unix.EOPNOTSUPP:
		// efa_alloc_mr minds the flags before it looks the descriptor up.
		e.Cause, e.Latest = fault.CauseAccess, fault.StageUverbs
		e.Detail = "the driver registers dma-bufs, and refuses these parameters whatever the buffer: access " + uverbs.AccessNames(e.ask.Access)
		e.Remedy = "ask for fewer access flags"
		return e
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause = fault.CauseNotSupported
	e.Detail = "the driver of " + ev.nicName() + " registers dma-bufs, but not this one, of " + ev.exporterName() + ", with these parameters"
	e.Remedy = "try memory of another kind, fewer access flags, or another NIC"
	return ev.narrow(e)
}

// since are the series that are known to have reg_user_mr_dmabuf in a driver, by
// its PCI driver. An earlier one may have it.
var since = map[string]struct{ major, minor int }{
	"mlx5_core": {5, 12}, "efa": {6, 1}, "ice": {6, 12}, "bnxt_en": {6, 12}, "mana": {7, 2}, "ionic": {7, 2},
}

// NoDriverOp says why a driver refuses every dma-buf, as far as its name, the
// kernel's release and the driver's taint tell.
func NoDriverOp(driver string, m refusal.Machine) (detail, remedy string) {
	const nic = "a NIC and a kernel whose driver does (mlx5 with CONFIG_INFINIBAND_ON_DEMAND_PAGING, efa, irdma, bnxt_re, mana, ionic)"
	detail, remedy = "the kernel's driver does not register dma-bufs", "use "+nic
	from, known := since[driver]
	older, release := m.Older(from.major, from.minor)
	switch {
	case driver == "rdma_rxe" || driver == "siw":
		return detail + ": " + driver + " emulates a NIC, and Linux has it without them", remedy
	case known && older:
		return fmt.Sprintf("%s of %s in Linux %s", detail, driver, release), fmt.Sprintf("use Linux %d.%d or newer, or %s", from.major, from.minor, nic)
	case driver != "mlx5_core":
		return detail, remedy
	}
	if foreign, evidence := m.Foreign("mlx5_ib"); foreign {
		return detail + ": mlx5_ib is not the kernel's own (" + evidence + ")",
			"install newer RDMA modules (DOCA, MLNX_OFED), or go back to the kernel's own; they must be built with CONFIG_INFINIBAND_ON_DEMAND_PAGING"
	}
	return detail + ": mlx5_ib takes them only if the kernel is built with CONFIG_INFINIBAND_ON_DEMAND_PAGING", "use a kernel with that option"
}
