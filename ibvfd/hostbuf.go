// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// AllocHost allocates zeroed host memory for MRs of this PD. Where the library has
// ibv_alloc_buf (rdma-core 65), the provider chooses the memory: in a confidential guest a
// NIC does not reach all that there is. Elsewhere it is [hostmem.Alloc]'s. The PD stays in use
// until the memory is closed.
func (pd *PD) AllocHost(size int) (*hostmem.Buf, error) {
	page := os.Getpagesize()
	if size <= 0 || size > int(^uint(0)>>1)-page {
		return hostmem.Alloc(size) // which says what is wrong
	}
	if err := pd.join(kindBuf); err != nil {
		return nil, err
	}
	b, err := pd.v.AllocBuf((size + page - 1) / page * page)
	if errors.Is(err, explain.NoSymbol) || errors.Is(err, unix.EOPNOTSUPP) {
		pd.drop(kindBuf)
		return hostmem.Alloc(size)
	}
	if err != nil {
		pd.drop(kindBuf)
		return nil, failed("ibv_alloc_buf", pd.ctx.name, errnoOf(err))
	}
	clear(b.Bytes())
	pd.bufs.add(b)
	free := func() {
		pd.bufs.remove(b)
		b.Free()
		pd.drop(kindBuf)
	}
	buf, err := hostmem.Adopt(b.Bytes(), size, free)
	if err != nil {
		free()
	}
	return buf, err
}

// providerBufs is memory that the provider has allocated, by address: it takes a call of
// its own to register.
type providerBufs struct {
	mu   sync.RWMutex
	list []libibverbs.Buf
}

func (p *providerBufs) add(b libibverbs.Buf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, b)
}

func (p *providerBufs) remove(b libibverbs.Buf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(o libibverbs.Buf) bool { return o == b })
}

// of is the one that a range lies in, nil if there is none.
func (p *providerBufs) of(addr, length uint64) libibverbs.Buf {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, b := range p.list {
		start, size := hostmem.AddrOf(b.Bytes()), uint64(len(b.Bytes()))
		if addr >= start && addr-start <= size && length <= size-(addr-start) {
			return b
		}
	}
	return nil
}
