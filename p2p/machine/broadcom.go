// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// fused lists the switches as NCCL counts them, nearest first. A Broadcom switch of the
// fourth or fifth generation appears as one switch with more switches below it, and NCCL
// counts all of them as one (src/graph/topo.cc, ncclTopoFlattenBcmSwitches).
func (m *Machine) fused(switches []pciaddr.Addr) ([]pciaddr.Addr, error) {
	var out []pciaddr.Addr
	for i, s := range switches {
		if i+1 < len(switches) {
			below, err1 := m.broadcom(s)
			above, err2 := m.broadcom(switches[i+1])
			if err := FirstError(err1, err2); err != nil {
				return nil, err
			}
			if gen := above.generation(0); gen != 0 && gen == below.generation(1) {
				continue
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// chip identifies such a switch; it is zero for other switches.
type chip struct{ device, subDevice uint16 }

// generation is the generation of a chip at a level, where level 0 is the upper one. It is 0 if
// the chip is not such a switch at that level.
func (c chip) generation(level uint16) int {
	switch {
	case c.device == 0xc010 && c.subDevice&0xf000 == 0xa000:
		return 4
	case c.device == 0xc030 && c.subDevice&0xf000 == level<<12:
		return 5
	}
	return 0
}

// broadcom reads the ID numbers of a switch, once.
func (m *Machine) broadcom(a pciaddr.Addr) (chip, error) {
	n := m.Node(a)
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if n.chip == nil {
		const vendor = 0x1000
		var c chip
		id := func(file string) uint16 {
			v, err := m.Sys.ReadUint("bus/pci/devices/"+a.String()+"/"+file, 16)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				n.chipErr = FirstError(n.chipErr, err)
			}
			return uint16(v)
		}
		if id("vendor") == vendor {
			if device := id("device"); (device == 0xc010 || device == 0xc030) && id("subsystem_vendor") == vendor {
				c = chip{device, id("subsystem_device")}
			}
		}
		n.chip = &c
	}
	return *n.chip, n.chipErr
}
