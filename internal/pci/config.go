// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// ErrTruncated says that configuration space was read in part only. The kernel
// shows 64 bytes to a reader without CAP_SYS_ADMIN in the initial user namespace;
// the capabilities lie behind them.
var ErrTruncated = errors.New("only the beginning of the configuration space can be read: run as root")

// ErrNoExtended says that a function answers, and its configuration space behind 256 bytes reads as ones.
// For a port, zeros count as well.
var ErrNoExtended = errors.New("its configuration space behind the first 256 bytes reads as ones or zeros")

// noAnswer is what a register reads as where nothing answers.
const noAnswer = 0xffffffff

// ErrNoAnswer says that a function answers every read with ones: it is
// switched off, or gone.
var ErrNoAnswer = errors.New("the function does not answer")

// Config is a function's configuration space.
type Config struct {
	data []byte
	size int64 // as the kernel has it, which is not always all that is read
}

// ReadConfig reads a function's configuration space.
func ReadConfig(s sysfs.FS, a pciaddr.Addr) (Config, error) {
	name := s.Path(functionPath(a), "config")
	st, err := files.Stat(name)
	if err != nil {
		return Config{}, fmt.Errorf("PCI function %v: %w", a, err)
	}
	data, err := files.ReadFile(name)
	if err != nil {
		return Config{}, fmt.Errorf("PCI function %v: %w", a, err)
	}
	if len(data) < stdHeaderSize {
		return Config{}, fmt.Errorf("PCI function %v: %d bytes in %s: %w", a, len(data), name, fs.ErrInvalid)
	}
	vendor, device := binary.LittleEndian.Uint16(data), binary.LittleEndian.Uint16(data[2:])
	if vendor == 0 || vendor != 0xffff && !identified(s, a, vendor, device) {
		return Config{}, otherIDs{a, vendor, device}
	}
	// The vendor of a virtual function reads as ones, too; its status does not.
	if binary.LittleEndian.Uint16(data[regStatus:]) == 0xffff {
		return Config{}, fmt.Errorf("PCI function %v: %w", a, ErrNoAnswer)
	}
	if padded(data) {
		return Config{data[:stdHeaderSize], stdHeaderSize}, nil
	}
	return Config{data, st.Size()}, nil
}

// otherIDs says that configuration space has other ids than the files vendor and device.
type otherIDs struct {
	of             pciaddr.Addr
	vendor, device uint16
}

func (e otherIDs) Error() string {
	return fmt.Sprintf("PCI function %v: its file config has the ids %04x:%04x, and its files vendor and device have others", e.of, e.vendor, e.device)
}

func (otherIDs) Is(target error) bool { return target == fs.ErrInvalid }

// identified reports whether the files vendor and device have these ids, or are not there. In a copy, config
// may belong to another function.
func identified(s sysfs.FS, a pciaddr.Addr, vendor, device uint16) bool {
	v, err1 := s.ReadUint(path.Join(functionPath(a), "vendor"), 16)
	d, err2 := s.ReadUint(path.Join(functionPath(a), "device"), 16)
	return err1 != nil || err2 != nil || uint16(v) == vendor && uint16(d) == device
}

// padded reports a copy of 64 bytes that were read and of zeros behind them: tar makes a file as long as
// the kernel says it is. A function with capabilities has the first of them there.
func padded(data []byte) bool {
	if len(data) <= stdHeaderSize || binary.LittleEndian.Uint16(data[regStatus:])&statusCapList == 0 {
		return false
	}
	return !slices.ContainsFunc(data[stdHeaderSize:], func(b byte) bool { return b != 0 })
}

func (c Config) u8(at int) (uint8, error) {
	if at < 0 || at >= len(c.data) {
		return 0, ErrTruncated
	}
	return c.data[at], nil
}

func (c Config) u16(at int) (uint16, error) {
	if at < 0 || at+2 > len(c.data) {
		return 0, ErrTruncated
	}
	return binary.LittleEndian.Uint16(c.data[at:]), nil
}

// capability finds a capability's offset; 0 if there is none.
func (c Config) capability(id uint8) (int, error) {
	status, err := c.u16(regStatus)
	if err != nil || status&statusCapList == 0 {
		return 0, err
	}
	at, err := c.u8(regCapList)
	if err != nil {
		return 0, err
	}
	// As many as fit, so that a loop ends (PCI_FIND_CAP_TTL is 48 too).
	for range (cfgSpaceSize - stdHeaderSize) / 4 {
		at &^= 3
		if at < stdHeaderSize {
			return 0, nil
		}
		header, err := c.u16(int(at))
		if err != nil {
			return 0, err
		}
		switch uint8(header) {
		case id:
			return int(at), nil
		case 0xff:
			return 0, nil
		}
		at = uint8(header >> 8)
	}
	return 0, nil
}

// extended finds an extended capability's offset; 0 if there is none. A
// function has none where the kernel knows 256 bytes of it: it is no PCI
// Express function, or the machine has no way to read the others.
func (c Config) extended(id uint16) (int, error) {
	if c.size == cfgSpaceSize {
		return 0, nil
	}
	if len(c.data) < cfgSpaceExpSize {
		return 0, ErrTruncated
	}
	at := cfgSpaceSize
	for range (cfgSpaceExpSize - cfgSpaceSize) / 8 {
		if at+4 > len(c.data) {
			return 0, nil
		}
		header := binary.LittleEndian.Uint32(c.data[at:])
		switch {
		case header == noAnswer, at == cfgSpaceSize && c.emptyExtended():
			return 0, ErrNoExtended
		case header == 0:
			return 0, nil
		case uint16(header) == id:
			return at, nil
		}
		if at = int(header >> 20 &^ 3); at < cfgSpaceSize {
			return 0, nil
		}
	}
	return 0, nil
}

// emptyExtended reports a port whose configuration space has only zeros after the first 256 bytes, as in a
// file that a copy has made longer. Nearly all ports report errors by a capability there; an endpoint, as of
// a virtual machine, may have none.
func (c Config) emptyExtended() bool {
	kind, err := c.Port()
	port := kind == PortRoot || kind == PortUpstream || kind == PortDownstream
	return err == nil && port && !slices.ContainsFunc(c.data[cfgSpaceSize:], func(b byte) bool { return b != 0 })
}

// Unreachable reports a PCI Express function of which the kernel itself knows
// 256 bytes: what lies behind them, ACS for one, does not exist for it.
func (c Config) Unreachable() bool {
	at, err := c.capability(capIDExp)
	return err == nil && at != 0 && c.size == cfgSpaceSize
}

// Virtual reports a virtual function, whose vendor reads as ones.
func (c Config) Virtual() bool { return binary.LittleEndian.Uint16(c.data) == 0xffff }

// RootPort reports whether the function is a PCI Express root port.
func (c Config) RootPort() (bool, error) {
	kind, err := c.Port()
	return kind == PortRoot, err
}

// Port is what a PCI Express function is to its link; PortNone of a
// conventional one.
func (c Config) Port() (Port, error) {
	at, err := c.capability(capIDExp)
	if err != nil || at == 0 {
		return PortNone, err
	}
	flags, err := c.u16(at + expFlags)
	if err != nil {
		return PortNone, err
	}
	return Port(flags & expFlagsType >> 4), nil
}

// ErrNoGroups says that a copy of sysfs lacks the directory of the IOMMU's groups or a part of it, so
// that the absence of a function's group proves nothing.
var ErrNoGroups = errors.New("/sys/kernel/iommu_groups was not copied, or not all of it")

// ungrouped returns nil if the function is in no IOMMU group, and an error if the copy cannot show that. A whole
// sysfs has class/mem and kernel; the kernel has no directory of groups if it is built without IOMMUs. An
// IOMMU that is on has groups, and a place in class/iommu.
func ungrouped(s sysfs.FS, a pciaddr.Addr) error {
	const dir = "kernel/iommu_groups"
	groups, err := s.List(dir)
	units, unread := s.List("class/iommu")
	switch {
	case unread != nil && !errors.Is(unread, fs.ErrNotExist):
		return fmt.Errorf("IOMMU group of PCI function %v: %w", a, unread)
	case err == nil && len(groups) == 0 && len(units) > 0:
		return fmt.Errorf("IOMMU group of PCI function %v: %w", a, ErrNoGroups)
	case errors.Is(err, fs.ErrNotExist) && s.Exists("class/mem") && s.Exists("kernel") && len(units) == 0:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("IOMMU group of PCI function %v: %w", a, ErrNoGroups)
	case err != nil:
		return fmt.Errorf("IOMMU group of PCI function %v: %w", a, err)
	}
	for _, group := range groups {
		devices := path.Join(dir, group, "devices")
		if s.Exists(path.Join(devices, a.String())) {
			return fmt.Errorf("IOMMU group of PCI function %v: it is in group %s, and has no link to it: %w", a, group, fs.ErrInvalid)
		}
		// The kernel frees a group with its last function.
		if in, err := s.List(devices); err != nil || len(in) == 0 {
			return fmt.Errorf("IOMMU group of PCI function %v: %w", a, ErrNoGroups)
		}
	}
	return nil
}

// IOMMUType is how the IOMMU treats a function's DMA: "DMA", "DMA-FQ",
// "identity", "blocked", "unmanaged"; "" without an IOMMU.
func IOMMUType(s sysfs.FS, a pciaddr.Addr) (string, error) {
	dir := functionPath(a)
	if !s.Exists(dir) {
		return "", fmt.Errorf("PCI function %v: %w", a, fs.ErrNotExist)
	}
	group := path.Join(dir, "iommu_group")
	switch _, err := files.Lstat(s.Path(group)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", ungrouped(s, a)
	case err != nil:
		return "", fmt.Errorf("IOMMU group of PCI function %v: %w", a, err)
	}
	kind, err := s.ReadString(path.Join(group, "type"))
	if err == nil && kind == "" {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", fmt.Errorf("IOMMU group of PCI function %v: %w", a, err)
	}
	return kind, nil
}

// IOMMUGroup is the number of the group that the IOMMU has a function in; ""
// without one.
func IOMMUGroup(s sysfs.FS, a pciaddr.Addr) (string, error) {
	group, err := files.Readlink(s.Path(functionPath(a), "iommu_group"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Exists(functionPath(a)):
		return "", ungrouped(s, a)
	case err != nil:
		return "", fmt.Errorf("IOMMU group of PCI function %v: %w", a, err)
	}
	number := path.Base(group)
	if number == "iommu_group" { // a link to itself: a copy's mark of what could not be read
		return "", fmt.Errorf("IOMMU group of PCI function %v: %w", a, unix.ELOOP)
	}
	if _, err := strconv.ParseUint(number, 10, 32); err != nil {
		return "", fmt.Errorf("IOMMU group of PCI function %v: %q: %w", a, number, fs.ErrInvalid)
	}
	return number, nil
}

// PhysicalFunction is the one that a virtual function is part of; false for others.
func PhysicalFunction(s sysfs.FS, a pciaddr.Addr) (pciaddr.Addr, bool, error) {
	link, err := files.Readlink(s.Path(functionPath(a), "physfn"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return pciaddr.Addr{}, false, nil
	case err != nil:
		return pciaddr.Addr{}, false, fmt.Errorf("PCI function %v: %w", a, err)
	}
	pf, err := pciaddr.Parse(path.Base(link))
	return pf, err == nil, err
}
