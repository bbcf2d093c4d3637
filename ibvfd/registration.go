// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/datadirect"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// registration is one registration of memory with the kernel. Once an MR shows it,
// the fields from pd to why do not change: a re-registration makes another
// registration, which the MR then shows.
type registration struct {
	pd       *PD
	made     registered
	access   Access
	kind     uint8 // a MemoryKind
	policy   uint8 // a RoutePolicy
	noDirect bool  // NoDataDirect
	peer     bool  // by a device pointer
	length   uint64
	iova     uint64
	took     time.Duration
	serial   uint64 // counts the context's registrations
	inode    uint64 // of the dma-buf, for holdings; 0 if it is not known
	why      string // more about the route, for MR.Why

	// The memory, to register it again; kind decides which of these are set. The
	// MR's lock guards them and all fields below.
	offset  uint64
	pointer uint64
	host    []byte
	buf     *dmabuf.Buf // not held: its owner may close it
	owner   dmabuf.Holder
	release func() // of the owner; nil without one

	older *registration // kept beside this one
	over  *registration // the registration that the kernel is to replace by this one, under the same keys
	ended bool
}

// registered is the MR that a route has made.
type registered struct {
	v                  libibverbs.MR // nil on the ioctl route
	lkey, rkey, handle uint32
}

// source returns the attributes that name r's memory.
func (r *registration) source() MRAttr {
	return MRAttr{
		Kind: MemoryKind(r.kind), Policy: RoutePolicy(r.policy), Host: r.host, Buf: r.buf, FD: -1, Pointer: r.pointer,
		Offset: r.offset, Length: r.length, IOVA: r.iova, Access: r.access, Owner: r.owner, NoDataDirect: r.noDirect,
	}
}

// route is the way that the registration took.
func (r *registration) route() Route {
	switch {
	case r.peer:
		return RoutePeerDirect
	case MemoryKind(r.kind) == HostMemory:
		if r.made.v.Call() == string(RouteHostBuf) {
			return RouteHostBuf
		}
		return RouteHost
	case r.made.v != nil:
		return Route(r.made.v.Call())
	}
	return RouteIoctl
}

// register registers what attr says in pd, or leaves nothing behind.
func (r *registration) register(pd *PD, attr *MRAttr) error {
	if err := pd.join(kindMR); err != nil {
		return err
	}
	r.pd, r.length, r.iova, r.access = pd, attr.Length, attr.IOVA, attr.Access
	r.kind, r.policy, r.offset, r.pointer = uint8(attr.Kind), uint8(attr.Policy), attr.Offset, attr.Pointer
	r.noDirect = attr.NoDataDirect
	var err error
	if attr.Owner != nil {
		r.owner = attr.Owner
		if r.release, err = attr.Owner.Hold(); err != nil {
			pd.drop(kindMR)
			return err
		}
	}
	switch attr.Kind {
	case HostMemory:
		err = r.registerHost(attr)
	case DMABufFD:
		err = r.registerDMABuf(attr)
	case DevicePointer:
		err = r.registerPeer(attr)
	default:
		err = pd.ctx.refuse(attr, fault.CauseNotSupported, unix.EOPNOTSUPP, "", "use HostMemory, DMABufFD or DevicePointer")
	}
	if err != nil {
		r.letGo()
		pd.drop(kindMR)
		return err
	}
	if r.foreign() && r.over == nil { // it has the key's entry already
		pd.ctx.foreign.Add(r.made.lkey)
	}
	held.Add(r.inode, pd.ctx, pd.ctx.name)
	if r.over != nil {
		r.serial = r.over.serial
	} else {
		r.serial = pd.ctx.numbers.Registered()
	}
	return nil
}

// foreign reports whether the CPU does not reach the memory by its IOVA.
func (r *registration) foreign() bool { return MemoryKind(r.kind) != HostMemory }

// end deregisters, once.
func (r *registration) end() error {
	if r.ended {
		return nil
	}
	if err := r.deregister(); err != nil {
		return err
	}
	// After the deregistration: inline sends with the key are refused as long as the
	// key is this MR's. If the kernel gives the key to a host MR at once, inline sends
	// with that are refused for a moment, too.
	if r.foreign() {
		r.pd.ctx.foreign.Remove(r.made.lkey)
	}
	r.gone()
	return nil
}

// gone releases what this process holds for a registration that the kernel has ended.
func (r *registration) gone() {
	held.Remove(r.inode, r.pd.ctx, r.pd.ctx.name)
	r.ended = true
	r.pd.drop(kindMR)
	r.letGo()
}

func (r *registration) deregister() error {
	// This succeeds after the device's removal, too: the kernel has destroyed the MR
	// then, and still takes this call (rdma_lookup_get_uobject in core/rdma_core.c).
	if r.made.v != nil {
		if err := r.made.v.Dereg(); err != nil {
			return r.explainDereg("ibv_dereg_mr", err)
		}
	} else if err := r.pd.ctx.file.DestroyMR(r.made.handle); err != nil {
		return r.explainDereg("UVERBS_METHOD_MR_DESTROY", err)
	}
	return nil
}

// explainDereg says why an MR stayed registered.
func (r *registration) explainDereg(op string, err error) error {
	e := failed(op, r.pd.ctx.name, errnoOf(err))
	e.Detail = fmt.Sprintf("MR with lkey %#x stays registered", r.made.lkey)
	if errors.Is(err, unix.EBUSY) {
		e.Remedy = "deallocate the memory windows bound to it first"
	}
	return e
}

// letGo ends the hold on the owner, and forgets the memory: other MRs may keep r's
// block reachable.
func (r *registration) letGo() {
	if r.release != nil {
		r.release()
	}
	r.forget()
}

func (r *registration) forget() {
	if r.owner != nil {
		r.owner, r.release = nil, nil
	}
	if r.buf != nil {
		r.buf = nil
	}
	if r.host != nil {
		r.host = nil
	}
}

func (r *registration) registerHost(attr *MRAttr) error {
	c := r.pd.ctx
	addr := hostmem.AddrOf(attr.Host) + attr.Offset
	if attr.IOVA == 0 {
		r.iova = addr
	}
	if !attr.SkipChecks {
		ask := attr.request()
		if err := c.broken(attr, explain.OfHost(&ask, uint64(len(attr.Host)))); err != nil {
			return err
		}
	}
	r.host = attr.Host
	if err := r.byAddress(attr, addr); err != nil {
		return c.explainHost(attr, err)
	}
	return nil
}

// byAddress registers by ibv_reg_mr, and memory that the provider has allocated by ibv_reg_buf_mr.
func (r *registration) byAddress(attr *MRAttr, addr uint64) error {
	var start time.Time
	if attr.Timed {
		start = time.Now()
	}
	var v libibverbs.MR
	var err error
	if b := r.pd.bufs.Of(addr, attr.Length); b != nil && r.iova == addr {
		v, err = r.pd.v.RegBuf(b, addr, attr.Length, uint32(attr.Access))
	} else {
		v, err = r.pd.v.RegHost(addr, attr.Length, r.iova, uint32(attr.Access))
	}
	if attr.Timed {
		r.took = time.Since(start)
	}
	if err == nil {
		r.made = fromVerbs(v)
	}
	return err
}

func fromVerbs(v libibverbs.MR) registered {
	lkey, rkey, handle := v.Keys()
	return registered{v, lkey, rkey, handle}
}

func (r *registration) registerDMABuf(attr *MRAttr) error {
	if attr.FDType != FDTypeDMABuf {
		return r.pd.ctx.refuse(attr, fault.CauseNotSupported, unix.EOPNOTSUPP, attr.FDType.String(), "use FDTypeDMABuf, the only type there is")
	}
	switch {
	case attr.unexported():
		remedy := ""
		if attr.Policy != RouteAutoPeerDirect {
			remedy = "export it, or allow RouteAutoPeerDirect where a peer-memory client is registered"
		}
		return r.otherwise(attr, r.pd.ctx.refuse(attr, fault.CauseNotSupported, unix.EOPNOTSUPP, "no dma-buf of the memory is at hand", remedy))
	case attr.Buf == nil:
		return r.registerFD(attr)
	}
	r.buf = attr.Buf
	fd, err := attr.Buf.Acquire()
	if err != nil {
		return r.pd.ctx.refuse(attr, fault.CauseClosedFD, 0, "the Buf is closed", "register before closing it").because(err)
	}
	err = r.registerOpen(attr, fd, uint64(attr.Buf.Size()), attr.Buf.Inode())
	attr.Buf.Release()
	return err
}

// registerOpen registers an open descriptor of a buffer of size bytes. inode is 0 if
// it is not known.
func (r *registration) registerOpen(attr *MRAttr, fd int, size, inode uint64) error {
	if ask := attr.request(); !attr.SkipChecks && !ask.Sound(size) {
		if err := r.pd.ctx.broken(attr, explain.OfDMABuf(&ask, size)); err != nil {
			return err
		}
	}
	var start time.Time
	if attr.Timed {
		r.pd.prepare(attr.Policy)
		start = time.Now()
	}
	made, route, n := r.place(attr, fd)
	r.made = made
	if attr.Timed {
		r.took = time.Since(start)
	}
	if n != 0 {
		return r.otherwise(attr, r.pd.explainDMABuf(attr, fd, route, n))
	}
	r.inode = inode
	return nil
}

// place registers a descriptor, or puts it in the place of another registration.
func (r *registration) place(attr *MRAttr, fd int) (registered, Route, unix.Errno) {
	was := r.over
	if was == nil {
		direct, why := r.pd.byDataDirect(attr, fd)
		r.why = why
		if direct.v != nil {
			return direct, RouteDataDirect, 0
		}
		return r.pd.routes(attr, fd)
	}
	r.why = was.why
	access := uint32(attr.Access)
	ask := uverbs.DMABufRereg{
		Access: &access,
		Memory: &uverbs.DMABufRange{FD: int32(fd), Offset: attr.Offset, Length: attr.Length, IOVA: attr.IOVA},
	}
	if r.pd != was.pd {
		ask.PD = &r.pd.handle
	}
	if err := r.pd.ctx.file.ReregDMABufMR(was.made.handle, ask); err != nil {
		return registered{}, RouteIoctl, errnoOf(err)
	}
	return was.made, was.route(), 0
}

// prepare asks, once for each context, what routes needs to know, so that RegTime
// does not include it.
func (pd *PD) prepare(p RoutePolicy) {
	if p != RouteIoctlOnly {
		pd.ctx.dataDirect()
	}
	switch p {
	case RouteAuto, RouteAutoPeerDirect:
		pd.dmabufSupport()
	case RouteIoctlOnly:
		_, _ = pd.ctx.file.Identify() // the registration reports a failure
	}
}

// routes tries the routes that the policy allows and returns the one that it tried last.
func (pd *PD) routes(attr *MRAttr, fd int) (registered, Route, unix.Errno) {
	auto := attr.Policy == RouteAuto || attr.Policy == RouteAutoPeerDirect
	if attr.Policy == RouteIoctlOnly || auto && pd.ctx.onlyIoctl() {
		return pd.byIoctl(attr, fd)
	}
	v, err := pd.v.RegDMABuf(attr.Offset, attr.Length, attr.IOVA, fd, uint32(attr.Access))
	if err == nil {
		return fromVerbs(v), Route(v.Call()), 0
	}
	n := errnoOf(err)
	if auto && (n == unix.EOPNOTSUPP || n == explain.NoSymbol) && !pd.dmabufSupport().ProviderTakes() {
		return pd.byIoctl(attr, fd)
	}
	return registered{}, RouteProvider, n
}

// byDataDirect registers by the NIC's DMA function if that reaches the memory. If it does
// not, or if the kernel refuses, byDataDirect registers nothing, and why may give the
// reason.
func (pd *PD) byDataDirect(attr *MRAttr, fd int) (made registered, why string) {
	if attr.NoDataDirect || attr.Policy == RouteIoctlOnly {
		return made, ""
	}
	d := pd.ctx.dataDirect()
	if !d.Has {
		return made, ""
	}
	if !datadirect.Reaches(pd.ctx.evidence.lookAt(fd).Exporter) {
		return made, ""
	}
	if attr.IOVA%uint64(os.Getpagesize()) != 0 {
		return made, fmt.Sprintf("not by the NIC's DMA function %v: that takes an IOVA that is aligned to pages", d.Function)
	}
	v, err := pd.v.RegDataDirect(attr.Offset, attr.Length, attr.IOVA, fd, uint32(attr.Access))
	if err != nil {
		return made, fmt.Sprintf("not by the NIC's DMA function %v: %s", d.Function, errno.Text(errnoOf(err)))
	}
	return fromVerbs(v), fmt.Sprintf("the NIC's DMA function %v moves the bytes (Data Direct)", d.Function)
}

func (pd *PD) byIoctl(attr *MRAttr, fd int) (registered, Route, unix.Errno) {
	mr, err := pd.ctx.file.RegDMABufMR(pd.kernelMR(attr, fd))
	if err != nil {
		return registered{}, RouteIoctl, errnoOf(err)
	}
	return registered{nil, mr.LKey, mr.RKey, mr.Handle}, RouteIoctl, 0
}

func (pd *PD) kernelMR(attr *MRAttr, fd int) uverbs.DMABufMR {
	return uverbs.DMABufMR{
		PD: pd.handle, FD: int32(fd), Access: uint32(attr.Access),
		Offset: attr.Offset, Length: attr.Length, IOVA: attr.IOVA,
	}
}

// registerFD registers a borrowed descriptor. The checks work on a duplicate,
// which the caller cannot close meanwhile; without checks the caller's own
// number goes to the kernel.
func (r *registration) registerFD(attr *MRAttr) error {
	if attr.SkipChecks {
		return r.registerOpen(attr, attr.FD, math.MaxUint64, 0)
	}
	buf, err := dmabuf.Import(attr.FD)
	switch {
	case err == nil:
	case errors.Is(err, unix.EBADF):
		return r.pd.ctx.refuse(attr, fault.CauseClosedFD, unix.EBADF, "", "pass an open descriptor")
	case errors.Is(err, dmabuf.ErrNotDMABuf):
		detail := ""
		if _, e := asFailed(err); e != nil {
			detail = e.Detail
		}
		return r.pd.ctx.refuse(attr, fault.CauseNotDMABuf, unix.EINVAL, detail, "export the memory as a dma-buf and pass that descriptor")
	default: // no descriptor left for a duplicate: the kernel can check as well
		return r.registerOpen(attr, attr.FD, math.MaxUint64, 0)
	}
	defer buf.Close()
	return buf.Do(func(fd int) error { return r.registerOpen(attr, fd, uint64(buf.Size()), buf.Inode()) })
}
