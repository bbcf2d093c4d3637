// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"structs"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The user interface of /dev/testimporter, kernel/testimporter/testimporter.h.

// ImporterKind is how an attachment treats the exporter's moves.
type ImporterKind uint32

// The kinds: enum testimporter_kind.
const (
	StaticImporter    ImporterKind = iota // knows nothing of moves
	PinnedImporter                        // pins: bnxt_re, efa, mana, ionic
	RevocableImporter                     // pins until the exporter revokes: irdma
	DynamicImporter                       // maps again after a move: mlx5
)

func (k ImporterKind) String() string {
	return [...]string{"static", "pinned", "revocable", "dynamic"}[k]
}

// SoftDevice is a device on no bus to attach on behalf of: TESTIMPORTER_SOFT.
const SoftDevice = "soft"

// SegmentPage is a flag of a segment: TESTIMPORTER_SEGMENT_PAGE.
const SegmentPage = 1 << 0

const (
	importerPeer2Peer = 1 << 0 // TESTIMPORTER_PEER2PEER
	importer32Bit     = 1 << 1 // TESTIMPORTER_32BIT
	importerSegments  = 1 << 14
)

// struct testimporter_attach
type importerAttach struct {
	_         structs.HostLayout
	Device    [32]byte
	FD        int32
	Kind      uint32
	Flags     uint32
	ID        uint32
	Peer2Peer uint32
	Reserved  uint32
}

// ImporterSegment is a DMA range: struct testimporter_segment.
type ImporterSegment struct {
	_        structs.HostLayout
	Addr     uint64 // that the device uses
	Length   uint64
	Phys     uint64 // of its page, with SegmentPage
	Flags    uint32 // SegmentPage, 2: marked as PCI bus address, 4: bounced
	Reserved uint32
}

// struct testimporter_transfer
type importerTransfer struct {
	_      structs.HostLayout
	ID     uint32
	Write  uint32
	Offset uint64
	Length uint64
	Data   unsafe.Pointer
}

// struct testimporter_map
type importerMap struct {
	_         structs.HostLayout
	ID        uint32
	Direction uint32
	Segments  unsafe.Pointer
	Max       uint32
	Count     uint32
}

// struct testimporter_distance
type importerDistance struct {
	_        structs.HostLayout
	Provider [32]byte
	Client   [32]byte
	Distance int32
	Reserved uint32
}

// Importer is the test importer.
type Importer struct{ file *os.File }

// Attachment is a dma-buf attached to a device by the test importer.
type Attachment struct {
	importer  *Importer
	id        uint32
	Peer2Peer bool // the attachment's peer2peer, as the exporter has left it
}

// TestImporter loads the test importer, and removes it when the test is over.
func TestImporter(t testing.TB) *Importer {
	t.Helper()
	VM(t)
	if !AtLeast(t, "6.12") {
		t.Skip("the test importer is built for 6.12 and later")
	}
	if out, err := exec.Command("modprobe", "testimporter").CombinedOutput(); err != nil {
		t.Fatalf("modprobe testimporter (make vm-build builds it): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("modprobe", "-r", "testimporter").CombinedOutput(); err != nil {
			t.Errorf("modprobe -r testimporter: %v: %s", err, out)
		}
	})
	return openImporter(t)
}

// Another has attachments of its own: what one file does, the others wait for.
func (*Importer) Another(t testing.TB) *Importer {
	t.Helper()
	return openImporter(t)
}

func openImporter(t testing.TB) *Importer {
	t.Helper()
	f, err := os.OpenFile("/dev/testimporter", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Importer{f}
}

// Directions and sizes of include/uapi/asm-generic/ioctl.h.
const (
	iocWrite = 1
	iocRead  = 2
)

// call repeats what a signal interrupted, such as those by which Go's runtime
// stops a thread: an interrupted call has done nothing, or nothing but a
// transfer that can be done again.
func (i *Importer) call(dir, number uint32, size uintptr, arg unsafe.Pointer) error {
	request := dir<<30 | uint32(size)<<16 | 'I'<<8 | number
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, i.file.Fd(), uintptr(request), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Attach attaches the dma-buf fd, which stays the caller's, to a PCI function
// ("0000:03:00.0") or to SoftDevice. The error is the kernel's errno.
func (i *Importer) Attach(device string, fd int, kind ImporterKind, peer2peer bool) (*Attachment, error) {
	flags := uint32(0)
	if peer2peer {
		flags = importerPeer2Peer
	}
	return i.attach(device, fd, kind, flags)
}

// Attach32 attaches to a PCI function whose driver says that it reaches the first
// 4 GiB only, with a static importer.
func (i *Importer) Attach32(device string, fd int) (*Attachment, error) {
	return i.attach(device, fd, StaticImporter, importer32Bit)
}

func (i *Importer) attach(device string, fd int, kind ImporterKind, flags uint32) (*Attachment, error) {
	a := importerAttach{FD: int32(fd), Kind: uint32(kind), Flags: flags}
	if len(device) >= len(a.Device) {
		return nil, fmt.Errorf("%q is no device", device)
	}
	copy(a.Device[:], device)
	if err := i.call(iocRead|iocWrite, 0x40, unsafe.Sizeof(a), unsafe.Pointer(&a)); err != nil {
		return nil, err
	}
	return &Attachment{i, a.ID, a.Peer2Peer != 0}, nil
}

// Map maps both ways, after pinning if the kind does. It answers with the
// mapping there is, if there is one.
func (a *Attachment) Map() ([]ImporterSegment, error) {
	segments := make([]ImporterSegment, importerSegments)
	m := importerMap{ID: a.id, Segments: unsafe.Pointer(&segments[0]), Max: importerSegments}
	if err := a.importer.call(iocRead|iocWrite, 0x42, unsafe.Sizeof(m), unsafe.Pointer(&m)); err != nil {
		return nil, err
	}
	if m.Count > importerSegments {
		return nil, errors.New("more segments than fit")
	}
	return segments[:m.Count], nil
}

// Write moves data to the buffer by the device's own DMA engine, at the mapped
// addresses. Only edu devices have one: it takes 100 ms and more for 2048 bytes,
// twice.
func (a *Attachment) Write(data []byte, offset uint64) error { return a.transfer(1, data, offset) }

// Read is the other way.
func (a *Attachment) Read(data []byte, offset uint64) error { return a.transfer(0, data, offset) }

func (a *Attachment) transfer(write uint32, data []byte, offset uint64) error {
	t := importerTransfer{ID: a.id, Write: write, Offset: offset, Length: uint64(len(data)), Data: unsafe.Pointer(unsafe.SliceData(data))}
	return a.importer.call(iocWrite, 0x45, unsafe.Sizeof(t), unsafe.Pointer(&t))
}

// Unmap ends the mapping.
func (a *Attachment) Unmap() error { return a.byID(0x43) }

// Detach ends the attachment.
func (a *Attachment) Detach() error { return a.byID(0x41) }

func (a *Attachment) byID(number uint32) error {
	return a.importer.call(iocWrite, number, unsafe.Sizeof(a.id), unsafe.Pointer(&a.id))
}

// Distance is the kernel's own between two PCI functions, negative if it sees
// no way for peer-to-peer.
func (i *Importer) Distance(provider, client string) (int, error) {
	var d importerDistance
	copy(d.Provider[:len(d.Provider)-1], provider)
	copy(d.Client[:len(d.Client)-1], client)
	if err := i.call(iocRead|iocWrite, 0x47, unsafe.Sizeof(d), unsafe.Pointer(&d)); err != nil {
		return 0, err
	}
	return int(d.Distance), nil
}
