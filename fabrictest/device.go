// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// device is a device that also registers Memory.
type device struct{ *memnic.Device }

// Source registers a part of a source.
func (d device) Source(src rc.Source, off, n int64, access ibvfd.Access) (*rc.Registration, error) {
	reg, err := d.Device.Source(memoryOf(src), off, n, access)
	if err != nil || reg.Move == nil {
		return reg, err
	}
	move := reg.Move
	reg.Move = func(to rc.Source) error { return move(memoryOf(to)) }
	return reg, nil
}

// memoryOf returns the source that the device knows.
func memoryOf(src rc.Source) rc.Source {
	if p, ok := src.(rc.PeerDirect); ok {
		src = p.Source
	}
	if m, ok := src.(*Memory); ok {
		src = m.mem
	}
	return src
}

// NewDomain returns the device with a protection domain of its own.
func (d device) NewDomain() (rc.Device, error) {
	sub, err := d.Device.NewDomain()
	if err != nil {
		return nil, err
	}
	return device{sub.(*memnic.Device)}, nil
}
