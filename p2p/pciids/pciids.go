// SPDX-License-Identifier: Apache-2.0

package pciids

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Paths are the names of the file on distributions.
var Paths = []string{"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"}

const (
	// MaxBytes is the greatest size of a file in bytes. The file of 2026 has 1.6 MB.
	MaxBytes = 16 << 20
	// maxName is how long a name may be. The longest one of the file has 200 bytes.
	maxName = 256
)

// ID has the numbers of a device, as its configuration space has them.
type ID struct{ Vendor, Device uint16 }

// Parse reads the two numbers in hexadecimal, without "0x"; false if they are none.
func Parse(vendor, device string) (ID, bool) {
	v, err1 := strconv.ParseUint(vendor, 16, 16)
	d, err2 := strconv.ParseUint(device, 16, 16)
	return ID{uint16(v), uint16(d)}, err1 == nil && err2 == nil
}

// Names has the names of devices.
type Names map[ID]string

// Load reads the names of the devices from the first of the paths that exists. If none exists, it returns no names and
// no error.
func Load(paths []string, want []ID) (Names, error) {
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Names{}, err
		}
		names, err := load(f, want)
		if err != nil {
			return names, fmt.Errorf("%s: %w", path, err)
		}
		return names, nil
	}
	return Names{}, nil
}

func load(f *os.File, want []ID) (Names, error) {
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return Names{}, err
	} else if !st.Mode().IsRegular() {
		return Names{}, errors.New("it is no regular file")
	}
	return Read(f, want)
}

// Read reads the names of the devices in want from a file in the form of pci.ids. If the file has only the vendor of a
// device, the name is the vendor's with the device's number. If it does not have the vendor, the result has no name for
// the device. A file of more than MaxBytes is an error.
func Read(r io.Reader, want []ID) (Names, error) {
	wanted, vendors := map[ID]bool{}, map[uint16]bool{}
	for _, id := range want {
		wanted[id], vendors[id.Vendor] = true, true
	}
	names := Names{}
	called := map[uint16]string{} // the vendors
	vendor := uint16(0)
	limited := &io.LimitedReader{R: r, N: MaxBytes + 1}
	lines := bufio.NewScanner(limited)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "C ") {
			break // the classes: no vendor follows
		}
		number, name, ok := entry(line)
		switch {
		case strings.HasPrefix(line, "\t\t"), strings.HasPrefix(line, "#"), !ok:
		case !strings.HasPrefix(line, "\t"):
			if vendor = number; vendors[vendor] {
				called[vendor] = name
			}
		case wanted[ID{vendor, number}]:
			names[ID{vendor, number}] = name
		}
	}
	if err := lines.Err(); err != nil {
		return Names{}, err
	}
	if limited.N == 0 {
		return Names{}, fmt.Errorf("it is longer than %d MiB", MaxBytes>>20)
	}
	for id := range wanted {
		switch v, d := called[id.Vendor], names[id]; {
		case v == "":
			delete(names, id)
		case d == "":
			names[id] = fmt.Sprintf("%s %04x", v, id.Device)
		default:
			names[id] = v + " " + d
		}
	}
	return names, nil
}

// entry reads a line of a vendor or a device: four hexadecimal digits, two blanks, a name.
func entry(line string) (number uint16, name string, ok bool) {
	line = strings.TrimPrefix(line, "\t")
	digits, name, ok := strings.Cut(line, "  ")
	if !ok || len(digits) != 4 || len(name) > maxName {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 16, 16)
	name = terminal.Line(strings.TrimSpace(name))
	return uint16(n), name, err == nil && name != ""
}
