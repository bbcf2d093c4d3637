// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// live are answers of a machine.
func live(opens error, support ibvfd.Support, err error) check.Live {
	return check.Live{
		Opens:   func(string) error { return opens },
		Imports: func(string) (ibvfd.Support, error) { return support, err },
	}
}

// exports is CUDA's answer for the GPUs of small-hgx.
func exports(e check.Export, err error) check.Live {
	return check.Live{DMABuf: func() (map[pciaddr.Addr]check.Export, error) {
		return map[pciaddr.Addr]check.Export{{Bus: 0x13}: e, {Bus: 0x15}: {OK: true}}, err
	}}
}

// inPorts is the MTU of each NIC's port, and the largest that the port can have.
func inPorts(err error, state ibdev.PortState, most int, mtu map[string]int) check.Live {
	return check.Live{Port: func(nic string, _ int) (ibdev.PortAttr, error) {
		return ibdev.PortAttr{State: state, MTU: mtu[nic], MaxMTU: most}, err
	}}
}

// flowControl is on for these priorities of each network device.
func flowControl(on ...int) check.Live {
	return check.Live{PFC: func(string) ([]int, error) { return on, nil }}
}

func confidential(on bool, err error) check.Live {
	return check.Live{Confidential: func() (bool, error) { return on, err }}
}

// memory is NVML's answer for the memory of each GPU.
func memory(size uint64, err error) check.Live {
	return check.Live{Memory: func() (map[pciaddr.Addr]uint64, error) {
		return map[pciaddr.Addr]uint64{{Bus: 0x13}: size, {Bus: 0x15}: size}, err
	}}
}

// reach is NVML's answer for reads and writes between two GPUs.
func reach(status string, err error) check.Live {
	return check.Live{Peers: func() ([]check.Peer, error) {
		return []check.Peer{{A: pciaddr.Addr{Bus: 0x13}, B: pciaddr.Addr{Bus: 0x15}, OK: status == "OK", Read: "OK", Write: status}}, err
	}}
}

// refusing opens all device files but one.
func refusing(name string) check.Live {
	return check.Live{Opens: func(file string) error {
		if strings.HasSuffix(file, name) {
			return unix.EACCES
		}
		return nil
	}}
}
