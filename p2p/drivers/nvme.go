// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// NVMe is an NVMe controller. It shares links with GPUs and NICs. Some controllers have
// a memory buffer (CMB), and NICs can reach it.
type NVMe struct {
	Name string // "nvme0"; its PCI address if it has no driver
	PCI  pciaddr.Addr
	// CMB is the size of the buffer in bytes. CMBKnown is false if no file shows whether
	// the controller has a buffer, as without the kernel's driver.
	CMB      uint64
	CMBKnown bool
	// Peer is the number of bytes of that buffer that the driver offers to other devices.
	Peer uint64
}

// classNVMe is base class and subclass of NVMe controllers.
const classNVMe = 0x0108

// NVMes finds the machine's NVMe controllers. If it returns an error, it also returns the
// controllers that could be read.
func NVMes(m *machine.Machine) ([]NVMe, error) {
	names, err := m.Sys.List("bus/pci/devices")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	var out []NVMe
	for _, name := range names {
		a, err := pciaddr.Parse(name)
		if err != nil {
			continue
		}
		class, err := m.Sys.ReadUint("bus/pci/devices/"+name+"/class", 24)
		switch {
		case err == nil && class>>8 == classNVMe:
			out = append(out, nvme(m, a))
		case err != nil && m.Sys.Exists("bus/pci/devices/"+name): // not removed meanwhile
			errs = append(errs, fmt.Errorf("PCI function %v: %w", a, err))
		}
	}
	return out, errors.Join(errs...)
}

func nvme(m *machine.Machine, a pciaddr.Addr) NVMe {
	n := NVMe{Name: a.String(), PCI: a}
	dir := "bus/pci/devices/" + n.Name
	if size, err := m.Sys.ReadUint(dir+"/p2pmem/size", 64); err == nil {
		n.Peer = size
	}
	controllers, err := m.Sys.List(dir + "/nvme")
	if err != nil || len(controllers) != 1 {
		return n
	}
	n.Name = controllers[0]
	switch text, err := m.Sys.ReadString(path.Join(dir, "nvme", n.Name, "cmb")); {
	case errors.Is(err, fs.ErrNotExist):
		n.CMBKnown = true // the driver makes the file only for a controller with a buffer
	case err == nil:
		n.CMB, n.CMBKnown = cmbSize(text)
	}
	return n
}

// cmbSize reads the register CMBSZ out of "cmbloc : x…\ncmbsz  : x…". It has a number of
// units and the size of a unit: 4 KiB, and sixteen times as much for each step.
func cmbSize(text string) (uint64, bool) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "cmbsz" {
			continue
		}
		r, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(value), "x"), 16, 32)
		const largestUnit = 6 // 64 GiB
		units, unit := r>>12, r>>8&0xf
		return units << (12 + 4*unit), err == nil && unit <= largestUnit
	}
	return 0, false
}
