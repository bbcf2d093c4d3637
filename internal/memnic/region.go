// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Route is the route of all registrations.
const Route ibvfd.Route = "memory"

// DirectSource is a source that devices of a network may register. *[Memory] is one.
type DirectSource interface {
	rc.Source
	// DMA returns the bytes, or the reason why they cannot be registered. Devices access the
	// bytes until the registration is closed.
	DMA() ([]byte, error)
}

// region is a registration: memory under an lkey and an rkey.
type region struct {
	mem        []byte
	base       uint64 // the IOVA of the first byte
	lkey, rkey uint32
	access     ibvfd.Access
	adapter    *adapter
	domain     uint32
	home       pciaddr.Addr // the PCI function whose memory it is; zero for host memory
	of         *Memory      // nil if it is other memory
	revoked    bool
	attr       ibvfd.MRAttr // as it was asked for, for errors
	release    func()       // of the source
}

// Host registers a part of host memory.
func (d *Device) Host(mem *hostmem.Buf, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	all := mem.Bytes()
	attr := ibvfd.MRAttr{Kind: ibvfd.HostMemory, Offset: uint64(off), Length: uint64(n), Access: access}
	if !within(off, n, len(all)) {
		return nil, d.refused(unix.EINVAL, fault.CauseBadRange, attr)
	}
	return d.register(&region{mem: all[off : off+n], access: access, attr: attr}, mem)
}

// Source registers a part of a source. If the source is no [DirectSource], or its DMA returns
// an error, the registration is refused with an *[ibvfd.RegError].
func (d *Device) Source(src rc.Source, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	if p, ok := src.(rc.PeerDirect); ok {
		src = p.Source
	}
	attr := ibvfd.MRAttr{Kind: ibvfd.DMABufFD, FD: -1, Offset: uint64(off), Length: uint64(n), IOVA: uint64(off), Access: access}
	r := &region{access: access, attr: attr}
	if err := d.locate(r, src, off, n); err != nil {
		return nil, err
	}
	reg, err := d.register(r, src)
	if err == nil && d.net.opt.movable {
		reg.Move = func(to rc.Source) error { return d.move(r, to, off, n) }
	}
	return reg, err
}

// locate sets where the memory of a region is: a part of a source.
func (d *Device) locate(r *region, src rc.Source, off, n int64) error {
	s, ok := src.(DirectSource)
	if !ok {
		return d.refused(unix.EOPNOTSUPP, fault.CauseNotSupported, r.attr)
	}
	if m, ok := src.(interface{ memory() *Memory }); ok {
		r.of = m.memory()
	}
	mem, err := s.DMA()
	if err == nil && r.of != nil && !r.of.reachedBy(d.name) {
		err = errCannotRegister
	}
	if err != nil {
		e := d.refused(unix.EOPNOTSUPP, fault.CauseNotSupported, r.attr)
		e.Detail = err.Error()
		return e
	}
	if !within(off, n, len(mem)) {
		return d.refused(unix.EINVAL, fault.CauseBadRange, r.attr)
	}
	r.mem = mem[off : off+n]
	if p, ok := src.(interface{ PCI() (pciaddr.Addr, bool) }); ok {
		r.home, _ = p.PCI()
	}
	return nil
}

// move puts a region on the same part of another source, under its keys. Bytes on their way to the old
// memory reach it first.
func (d *Device) move(r *region, to rc.Source, off, n int64) error {
	if p, ok := to.(rc.PeerDirect); ok {
		to = p.Source
	}
	next := region{attr: r.attr}
	if err := d.locate(&next, to, off, n); err != nil {
		return err
	}
	release, err := to.Hold()
	if err != nil {
		return err
	}
	d.net.mu.Lock()
	switch {
	case d.gone != nil, d.net.keys[r.lkey] != r:
		err = d.refused(unix.EIO, fault.CauseDeviceGone, r.attr)
	case next.of != nil && next.of.isRevoked():
		err = d.refused(unix.ENODEV, fault.CauseGone, r.attr)
	default:
		r.adapter.arrive(func(p *placing) bool { return p.region == r })
		r.mem, r.home, r.of, r.revoked = next.mem, next.home, next.of, false
		r.release, release = release, r.release
	}
	d.net.mu.Unlock()
	release()
	return err
}

func within(off, n int64, size int) bool {
	return off >= 0 && n > 0 && off <= int64(size) && n <= int64(size)-off
}

func (d *Device) refused(errno unix.Errno, cause fault.Cause, attr ibvfd.MRAttr) *ibvfd.RegError {
	return &ibvfd.RegError{Device: d.name, Attr: attr, Errno: errno, Cause: cause}
}

// register gives a region its keys, and holds its memory.
func (d *Device) register(r *region, of dmabuf.Holder) (*rc.Registration, error) {
	const writes = ibvfd.AccessRemoteWrite | ibvfd.AccessRemoteAtomic
	if r.access&writes != 0 && r.access&ibvfd.AccessLocalWrite == 0 {
		return nil, d.refused(unix.EINVAL, fault.CauseAccess, r.attr)
	}
	release, err := of.Hold()
	if err != nil {
		return nil, err
	}
	reg, err := d.give(r, release)
	if err != nil {
		release()
	}
	return reg, err
}

func (d *Device) give(r *region, release func()) (*rc.Registration, error) {
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.gone != nil {
		return nil, d.refused(unix.EIO, fault.CauseDeviceGone, r.attr)
	}
	if r.of != nil && r.of.isRevoked() {
		return nil, d.refused(unix.ENODEV, fault.CauseGone, r.attr)
	}
	r.release, r.lkey = release, n.nextKey()
	r.rkey, r.base, r.adapter, r.domain = r.lkey+1, uint64(r.lkey)<<32, d.adapter, d.domain
	n.keys[r.lkey], n.keys[r.rkey] = r, r
	n.open++
	piece := func(key uint32) lower.Memory {
		return lower.Memory{{Addr: r.base, Length: int64(len(r.mem)), Key: key}}
	}
	return &rc.Registration{Local: piece(r.lkey), Remote: piece(r.rkey), Route: Route, Close: func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.keys[r.lkey] != r {
			return nil
		}
		r.adapter.arrive(func(p *placing) bool { return p.region == r })
		delete(n.keys, r.lkey)
		delete(n.keys, r.rkey)
		n.open--
		r.release()
		return nil
	}}, nil
}

// at returns the bytes that a key covers, and their region; nil if the key does not cover them
// or does not allow the access.
func (n *Network) at(l *Link, key uint32, addr uint64, size int, remote bool, need ibvfd.Access) ([]byte, *region) {
	r := n.keys[key]
	if r == nil || (key == r.rkey) != remote || r.revoked || r.domain != l.domain || r.access&need != need {
		return nil, nil
	}
	if addr < r.base || addr-r.base > uint64(len(r.mem)) || uint64(size) > uint64(len(r.mem))-(addr-r.base) {
		return nil, nil
	}
	return r.mem[addr-r.base:][:size], r
}

// Revoke ends the access of a network's devices to memory, as a GPU's driver does when it
// takes memory away. When Revoke has returned, no device accesses the memory any more: a peer
// gets a remote access error, and the local side a local protection error. The memory cannot
// be registered again.
func (n *Network) Revoke(m *Memory) {
	m.mu.Lock()
	m.revoked = true
	m.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.keys {
		if r.of == m {
			r.revoked = true
			r.adapter.forget(r)
		}
	}
}
