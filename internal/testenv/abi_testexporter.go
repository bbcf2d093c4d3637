// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"structs"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// The user interface of /dev/testexporter, kernel/testexporter/testexporter.h.

// ScatterList is how the test exporter describes memory to importers, where
// that differs from what the exporters of real drivers do.
type ScatterList uint32

// The scatter lists: enum testexporter_mode.
const (
	PlainList    ScatterList = iota     // RAM, with pages
	NoPages      ScatterList = iota + 6 // RAM, by addresses only
	InBAR                               // behind a BAR, by its addresses as they are
	Halves                              // RAM, then behind a BAR as above
	HalvesByDMA                         // RAM, then behind a BAR by dma_map_resource
	P2PMem                              // ZONE_DEVICE pages of a BAR
	HalvesP2PMem                        // RAM, then as above
	Nested                              // RAM; an importer that attaches is attached to another buffer too
)

func (l ScatterList) String() string {
	if l == PlainList {
		return "plain"
	}
	return [...]string{"no-pages", "bar", "halves", "halves-dma", "p2pmem", "halves-p2pmem", "nested"}[l-NoPages]
}

// struct testexporter_create
type exporterCreate struct {
	_        structs.HostLayout
	Mode     uint32
	Pages    uint32
	Device   [32]byte
	BAR      uint32
	Reserved uint32
}

// TESTEXPORTER_CREATE
var exporterCreateIoctl = ioctl.IOW('T', 0xe0, uint32(unsafe.Sizeof(exporterCreate{})))

// TESTEXPORTER_MOVE
var exporterMoveIoctl = ioctl.IO('T', 0xe1)

// ListExporter is the test exporter, with memory of one PCI function that has no
// driver.
type ListExporter struct {
	file   *os.File
	device string
	bar    int
}

// TestExporter loads the test exporter, and removes it when the test is over. What
// is behind a BAR is the device's.
func TestExporter(t testing.TB, device string, bar int) *ListExporter {
	t.Helper()
	VM(t)
	if out, err := exec.Command("modprobe", "testexporter").CombinedOutput(); err != nil {
		t.Fatalf("modprobe testexporter (make vm-build builds it): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("modprobe", "-r", "testexporter").CombinedOutput(); err != nil {
			t.Errorf("modprobe -r testexporter: %v: %s", err, out)
		}
	})
	f, err := os.OpenFile("/dev/testexporter", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &ListExporter{f, device, bar}
}

// Create makes a dma-buf, whole pages of size bytes. Bytes behind the BAR are at its
// beginning, the same for all buffers, except for lists with P2PMem. The error is the
// kernel's errno: EOPNOTSUPP for lists with P2PMem where there is no PCI_P2PDMA.
func (x *ListExporter) Create(list ScatterList, size int) (*os.File, error) {
	c := exporterCreate{Mode: uint32(list), Pages: uint32(size / os.Getpagesize()), BAR: uint32(x.bar)}
	if len(x.device) >= len(c.Device) {
		return nil, fmt.Errorf("%q is no device", x.device)
	}
	copy(c.Device[:], x.device)
	// The answer is the descriptor, so internal/ioctl, which drops it, does not do.
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, x.file.Fd(), uintptr(exporterCreateIoctl), uintptr(unsafe.Pointer(&c)))
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, list.String()), nil
}

// Move tells the importers of one of its dma-bufs that it has moved. The error is
// the kernel's errno: EBUSY if one has pinned it.
func (x *ListExporter) Move(buf *os.File) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, x.file.Fd(), uintptr(exporterMoveIoctl), buf.Fd())
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
