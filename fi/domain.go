// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Domain is an opened NIC with a protection domain (struct fid_domain). Memory is registered and
// endpoints are made with it. Its methods may be called from several goroutines at once.
type Domain struct {
	nic *memory.NIC
}

// DomainOptions tune a Domain. The zero value is usable.
type DomainOptions struct {
	// MaxPinned bounds the host memory that is pinned for the NIC, in bytes: that of AllocHost,
	// of staging buffers and of injected data. 0 stands for 256 MiB. Calls that would exceed it
	// return [ENOMEM].
	MaxPinned int64
	// Event, if not nil, is called with the device's asynchronous events, one after the other,
	// on a goroutine of the domain. It must return soon, and must not close the domain.
	Event func(ibvfd.Event)
}

// Open opens the RDMA device of that name ("mlx5_0", "rxe0"). Programs are tested without a device
// by OpenDomain of package fabrictest.
func Open(nic string, opt DomainOptions) (*Domain, error) {
	n, err := memory.OpenNIC(nic, memory.NICOptions{MaxPinned: opt.MaxPinned, Event: opt.Event})
	if err != nil {
		return nil, coded(err)
	}
	return domainOf(n), nil
}

// domainOf returns the Domain of a NIC. Tests have NICs in memory.
func domainOf(n *memory.NIC) *Domain { return &Domain{n} }

func init() { bridge.NewDomain = func(n *memory.NIC) any { return domainOf(n) } }

// Name returns the device's name: "rxe0".
func (d *Domain) Name() string { return d.nic.Name() }

// Close closes the device. While memory or endpoints of it are open it returns [EBUSY] and closes
// nothing. A second Close does nothing.
func (d *Domain) Close() error { return coded(d.nic.Close()) }

// Register registers memory (fi_mr_reg), and holds it: the source's Close returns
// dmabuf.ErrInUse until all MRs of it are closed. *[gpualloc.Buffer] is a Source. If the memory
// cannot be registered, and the policy allows it, the MR is staged: [MR.Path] has the reason.
func (d *Domain) Register(src Source, opt MROptions) (*MR, error) {
	var s memory.Source
	if src != nil {
		s = src
	}
	b, err := d.nic.Register(s, opt.engine())
	return mrOf(b, err)
}

// Allocate registers size bytes that an allocator provides. The MR owns the memory and frees it.
func (d *Domain) Allocate(ctx context.Context, a gpualloc.Allocator, size int64, opt MROptions) (*MR, error) {
	b, err := d.nic.Allocate(ctx, a, size, opt.engine())
	return mrOf(b, err)
}

// AllocHost allocates and registers size bytes of pinned host memory.
func (d *Domain) AllocHost(size int64) (*MR, error) {
	b, err := d.nic.AllocHost(size)
	return mrOf(b, err)
}
