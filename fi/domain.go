// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/bridge"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Domain is an opened NIC with a protection domain (struct fid_domain). It registers memory and
// makes endpoints. Its methods may be called from several goroutines at once.
type Domain struct {
	nic *memory.NIC
}

// DomainOptions tune a Domain. The zero value is usable.
type DomainOptions struct {
	// MaxPinned bounds the host memory that is pinned for the NIC, in bytes: that of AllocHost,
	// of staging buffers and of injected data. 0 stands for 256 MiB. A call that would exceed
	// it returns [ENOMEM].
	MaxPinned int64
	// Event, if not nil, is called with the device's asynchronous events, one after the other,
	// in a goroutine of the Domain. It must return soon, and must not close the Domain.
	Event func(ibvfd.Event)
}

// Open opens the RDMA device of that name ("mlx5_0", "rxe0"). The caller closes the Domain.
// Package fabrictest has OpenDomain for tests without a device.
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

// Close closes the device. While an MR or an endpoint of the Domain is open, it returns [EBUSY]
// and closes nothing. A second Close does nothing.
func (d *Domain) Close() error { return coded(d.nic.Close()) }

// Register registers memory (fi_mr_reg), and holds it: the source's Close returns
// failure.ErrInUse until all MRs of the memory are closed. *[gpualloc.Buffer] is a Source. If
// the NIC cannot register the memory, and the policy is PreferDirect, the MR is staged: MR.Path
// has the reason.
func (d *Domain) Register(src Source, opt MROptions) (*MR, error) {
	var s memory.Source
	if src != nil {
		s = src
	}
	b, err := d.nic.Register(s, opt.engine())
	return mrOf(b, err)
}

// Allocate allocates size bytes by an allocator, and registers them. The MR owns the memory, and
// its Close or Release frees it.
func (d *Domain) Allocate(ctx context.Context, a gpualloc.Allocator, size int64, opt MROptions) (*MR, error) {
	b, err := d.nic.Allocate(ctx, a, size, opt.engine())
	return mrOf(b, err)
}

// AllocHost allocates and registers size bytes of pinned host memory, which Close or Release of
// the MR frees.
func (d *Domain) AllocHost(size int64) (*MR, error) {
	b, err := d.nic.AllocHost(size)
	return mrOf(b, err)
}
