// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/internal/errs"
)

// Memory that several NICs have registered.

// RegisterSource registers the first size bytes of a source with several NICs, and returns a Buffer
// for each. If some of them reach the memory, the Buffers of the others are Missing. If none does, all
// use one staging buffer, so that each NIC sees the bytes that arrive through another one; with
// DirectOnly it returns an error. When the last NIC has unregistered the memory, owned is closed.
func RegisterSource(ctx context.Context, nics []*NIC, owned []io.Closer, src Source, size int64, opt BufferOptions) ([]*Buffer, error) {
	return registerWith(owned, func(o *owner) ([]*Buffer, error) {
		list, why, err := direct(ctx, nics, o, src, size, opt)
		first := slices.IndexFunc(list, func(b *Buffer) bool { return b != nil })
		switch {
		case err != nil:
			return list, err
		case first < 0 && opt.Policy == DirectOnly:
			return list, refusal(why[0])
		case first < 0:
			return stage(nics, o, src, size, opt, why)
		}
		for i, n := range nics {
			if list[i] != nil {
				continue
			}
			list[i], err = o.register(opt, func(opt BufferOptions) (*Buffer, error) { return n.registerMissing(list[first], why[i], opt) })
			if err != nil {
				return list, err
			}
		}
		return list, nil
	})
}

// direct registers memory with the NICs that reach it. For each other NIC it returns nil and the reason.
func direct(ctx context.Context, nics []*NIC, o *owner, src Source, size int64, opt BufferOptions) (list []*Buffer, why []error, err error) {
	list, why = make([]*Buffer, len(nics)), make([]error, len(nics))
	for i, n := range nics {
		if err := errs.Ended(ctx); err != nil {
			return list, why, err
		}
		if opt.Policy == StagedOnly {
			continue
		}
		own := opt
		own.Policy = orRefuse
		b, err := o.register(own, func(opt BufferOptions) (*Buffer, error) { return n.registerPart(src, size, opt) })
		if refused := (*ibvfd.RegError)(nil); errors.As(err, &refused) {
			why[i] = err
			continue
		}
		if err != nil {
			return list, why, err
		}
		b.core.policy = opt.Policy
		list[i] = b
	}
	return list, why, nil
}

// stage makes all NICs use one staging buffer.
func stage(nics []*NIC, o *owner, src Source, size int64, opt BufferOptions, why []error) (list []*Buffer, err error) {
	for i, n := range nics {
		b, err := o.register(opt, func(opt BufferOptions) (*Buffer, error) {
			if i > 0 {
				return n.RegisterStaged(list[0], opt.Owned)
			}
			opt.Policy = StagedOnly
			return n.registerPart(src, size, opt)
		})
		if err != nil {
			return list, errors.Join(err, why[i])
		}
		b.core.policy, b.core.path.Reason = opt.Policy, why[i]
		list = append(list, b)
	}
	return list, nil
}

// registerWith calls a function that registers memory. When all of it is unregistered, owned is closed.
func registerWith(owned []io.Closer, register func(o *owner) ([]*Buffer, error)) ([]*Buffer, error) {
	o := &owner{list: owned}
	hold := o.add()
	list, err := register(o)
	if err != nil {
		err = errs.Join(err, ReleaseAll(list))
		list = nil
	}
	for _, b := range list {
		b.core.id = list[0].core.id
	}
	return list, errs.Join(err, hold.Close())
}

// AllocHostWith makes host memory that all of the NICs register.
func AllocHostWith(nics []*NIC, size int64, order Ordering) ([]*Buffer, error) {
	if size <= 0 {
		return nil, &failure.Error{Op: "allocate host memory", Detail: fmt.Sprintf("%d bytes", size), Err: failure.ErrRange}
	}
	for _, n := range nics {
		if err := n.Pin(size, "a buffer of host memory"); err != nil {
			return nil, err
		}
		n.Unpin(size) // the registration pins it
	}
	mem, err := hostmem.Alloc(int(size))
	if err != nil {
		return nil, err
	}
	return registerWith([]io.Closer{mem}, func(o *owner) (list []*Buffer, err error) {
		for _, n := range nics {
			b, err := o.register(BufferOptions{}, func(opt BufferOptions) (*Buffer, error) { return n.RegisterHost(mem, order, opt.Owned) })
			if err != nil {
				return list, err
			}
			list = append(list, b)
		}
		return list, nil
	})
}

// registerPart registers a source, and returns its first bytes: allocators round sizes up.
func (n *NIC) registerPart(src Source, size int64, opt BufferOptions) (*Buffer, error) {
	all, err := n.Register(src, opt)
	if err != nil || all.Size() == size {
		return all, err
	}
	part, err := all.Slice(0, size)
	return part, errs.Join(err, all.Release())
}

// ReleaseAll releases Buffers.
func ReleaseAll(list []*Buffer) (err error) {
	for _, b := range list {
		if b != nil {
			err = errs.Join(err, b.Release())
		}
	}
	return err
}

// Retire makes the Buffers of one memory by several NICs unusable, all of them or none. If
// something else keeps the memory, it returns a text that names it. After success the caller
// releases each Buffer.
func Retire(list []*Buffer) (busy string) {
	for _, b := range list {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.core.mu.Lock()
		defer b.core.mu.Unlock()
	}
	for _, b := range list {
		staged := 0 // of the others, which use the staging buffer of this one
		for _, other := range list {
			if other.core.first == b.core {
				staged++
			}
		}
		if busy = b.core.keeps(staged); busy != "" {
			return busy
		}
	}
	for _, b := range list {
		b.retired = true
	}
	return ""
}

// owner closes what Buffers own when no NIC has it registered any more.
type owner struct {
	mu   sync.Mutex
	left int // registrations
	list []io.Closer
}

// share is an owner's for one registration.
type share struct {
	owner *owner
	gone  bool
}

func (o *owner) add() *share {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left++
	return &share{owner: o}
}

// register registers memory with a NIC by a function, and makes the registration own a share.
func (o *owner) register(opt BufferOptions, register func(BufferOptions) (*Buffer, error)) (*Buffer, error) {
	x := o.add()
	opt.Owned = x
	b, err := register(opt)
	if err != nil {
		return nil, errs.Join(err, x.Close())
	}
	return b, nil
}

// Close may be called again after an error.
func (s *share) Close() error {
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if !s.gone {
		s.gone = true
		o.left--
	}
	if o.left > 0 {
		return nil
	}
	for len(o.list) > 0 {
		if err := o.list[0].Close(); err != nil {
			return err
		}
		o.list = o.list[1:]
	}
	return nil
}
