// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/refusal"
)

// noMethod explains EPROTONOSUPPORT: of the method, or of an attribute that the
// kernel's ib_uverbs does not know.
func (ev *evidence) noMethod(e *RegError) *RegError {
	e.Latest = StageUverbs
	switch {
	case ev.probe == unix.EPROTONOSUPPORT:
		detail, remedy := ev.machine.NoMethod()
		return e.proven(StageUverbs, CauseNoMethod, detail, remedy)
	case ev.probe == unix.EBADF && ev.route == RouteProvider:
		e.Cause, e.Detail = CauseUnknown, "the kernel has REG_DMABUF_MR, and does not know an attribute that libibverbs passes with it"
		e.Remedy = "allow the ioctl route, which passes none, or use RDMA modules and a libibverbs of one release"
	default:
		e.Cause, e.Detail = CauseUnknown, "the kernel refused REG_DMABUF_MR or an attribute of it; with descriptor -1 it answered "+answerName(ev.probe)
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

func (ev *evidence) noProviderOp(e *RegError, detail string) *RegError {
	remedy := "allow the ioctl route, which asks the kernel directly, or install a newer rdma-core"
	if ev.support.kernel != Yes {
		remedy = "install a newer rdma-core"
	}
	return e.proven(StageProvider, CauseNoProviderOp, detail, remedy)
}

// notSupported tells the meanings of EOPNOTSUPP apart.
func (ev *evidence) notSupported(e *RegError) *RegError {
	s := ev.support
	switch {
	case ev.route == RouteProvider && s.provider == No:
		return ev.noProviderOp(e, "libibverbs' provider for this device has no reg_dmabuf_mr; the kernel has")
	case s.kernelErrno == unix.EPROTONOSUPPORT:
		e.Cause, e.Latest = CauseNoMethod, StageUverbs
		e.Detail, e.Remedy = ev.machine.NoMethod()
		return e
	case s.kernelErrno == unix.EOPNOTSUPP:
		// Also with fd -1: refused before any buffer was looked at.
		e.Cause, e.Latest = CauseNoDriverOp, StageUverbs
		e.Detail, e.Remedy = noDriverOp(ev.driver, ev.machine)
		return e
	case ev.probe == unix.EOPNOTSUPP:
		// efa_alloc_mr minds the flags before it looks the descriptor up.
		e.Cause, e.Latest = CauseAccess, StageUverbs
		e.Detail = "the driver registers dma-bufs, and refuses these parameters whatever the buffer: access " + e.Attr.Access.String()
		e.Remedy = "ask for fewer access flags"
		return e
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause = CauseNotSupported
	e.Detail = "the driver of " + ev.nicName() + " registers dma-bufs, but not this one, of " + ev.exporterName() + ", with these parameters"
	e.Remedy = "try memory of another kind, fewer access flags, or another NIC"
	return ev.narrow(e)
}

// since are the series that are known to have reg_user_mr_dmabuf in a driver, by
// its PCI driver. An earlier one may have it.
var since = map[string]struct{ major, minor int }{
	"mlx5_core": {5, 12}, "efa": {6, 1}, "ice": {6, 12}, "bnxt_en": {6, 12}, "mana": {7, 2}, "ionic": {7, 2},
}

// noDriverOp says why a driver refuses every dma-buf, as far as its name, the
// kernel's release and the driver's taint tell.
func noDriverOp(driver string, m refusal.Machine) (detail, remedy string) {
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

// attachedElsewhere lists the other devices that have a dma-buf attached: what this
// process has registered, and what the kernel's list has of others. err is why that
// list could not be read.
func (c *Context) attachedElsewhere(inode uint64) (list []string, err error) {
	if inode == 0 {
		return nil, nil
	}
	list = held.others(inode, c.name)
	bufs, err := c.kernelBufs("")
	if err != nil {
		return list, err
	}
	names, own := ibdev.ByFunction(c.sys.Root()), ""
	if c.info.PCI != nil {
		own = c.info.PCI.String()
	}
	for _, b := range bufs {
		if b.Inode != inode {
			continue
		}
		for _, at := range b.Attached {
			if at == own {
				continue
			}
			if names[at] != "" {
				at = names[at]
			}
			if at != c.name && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	return list, nil
}
