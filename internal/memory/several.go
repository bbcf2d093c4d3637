// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"io"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/internal/errs"
)

// Memory that several NICs have registered.

// RegisterWith registers memory with several NICs by a function, and returns a Buffer for each.
// The function gets the io.Closer that the Buffer owns; when the last NIC has unregistered the
// memory, owned is closed. If one NIC has to stage the memory, all of them use its staging
// buffer: otherwise a NIC would not see the bytes that arrive through another one.
func RegisterWith(nics []*NIC, owned []io.Closer, register func(*NIC, io.Closer) (*Buffer, error)) (list []*Buffer, err error) {
	o := &owner{list: owned}
	hold := o.add()
	defer func() {
		if err != nil {
			err = errs.Join(err, ReleaseAll(list))
			list = nil
		}
		err = errs.Join(err, hold.Close())
	}()
	for _, n := range nics {
		x := o.add()
		b, err := register(n, x)
		if err != nil {
			return list, errs.Join(err, x.Close())
		}
		list = append(list, b)
	}
	return list, stageTogether(nics, list, o)
}

// ReleaseAll releases Buffers.
func ReleaseAll(list []*Buffer) (err error) {
	for _, b := range list {
		err = errs.Join(err, b.Release())
	}
	return err
}

// stageTogether makes all NICs use one staging buffer if one of them has one.
func stageTogether(nics []*NIC, list []*Buffer, o *owner) error {
	first := slices.IndexFunc(list, func(b *Buffer) bool { return b.core.staging != nil })
	if first < 0 {
		return nil
	}
	for i, b := range list {
		if i == first {
			continue
		}
		x := o.add()
		together, err := nics[i].RegisterStaged(list[first], x)
		if err != nil {
			return errs.Join(err, x.Close())
		}
		list[i] = together
		if err := b.Release(); err != nil {
			return err
		}
	}
	return nil
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
