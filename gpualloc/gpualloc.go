// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// The errors of Open for a spec that names no allocator, several, or one that
// cannot be used.
var (
	ErrUnknownSpec   = errors.New("no such allocator")
	ErrAmbiguousSpec = errors.New("more than one allocator fits")
	ErrUnavailable   = errors.New("allocator not available")
)

// ErrNotInstalled is the error of a Runtime whose library is not installed
// ([Found.Refuse]). That is no fault, and Open("auto") does not mention it.
// errors.Is also finds fs.ErrNotExist in it.
var ErrNotInstalled error = notInstalled{}

type notInstalled struct{}

func (notInstalled) Error() string        { return "is not installed" }
func (notInstalled) Is(target error) bool { return target == fs.ErrNotExist }

// Kind is the kind of memory that an allocator asks its driver for. It does not
// prove where the bytes are: drivers move buffers.
type Kind int

// The kinds of memory.
const (
	KindUnknown Kind = iota // the driver decides
	KindSystem              // the machine's own memory
	KindVRAM                // a GPU's local memory
)

// String returns "unknown", "system" or "vram".
func (k Kind) String() string {
	switch k {
	case KindUnknown:
		return "unknown"
	case KindSystem:
		return "system"
	case KindVRAM:
		return "vram"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// MarshalText makes a Kind a string in JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, c := range []Kind{KindUnknown, KindSystem, KindVRAM} {
		if c.String() == string(text) {
			*k = c
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind of memory", text)
}

// Env says where the system's file trees are. The zero value is this machine;
// tests and programs that read a copy of another machine name other
// directories.
type Env struct {
	Sys  string // root of sysfs, "" for /sys
	Proc string // root of procfs, "" for /proc
	Dev  string // root of the device nodes, "" for /dev
}

func (e Env) dev() string {
	if e.Dev == "" {
		return "/dev"
	}
	return e.Dev
}

// Limit is something that bounds an allocation.
type Limit struct {
	Name  string `json:"name"`  // "udmabuf.size_limit_mb", "MemAvailable"
	Bytes int64  `json:"bytes"` // how many bytes it allows now
	Where string `json:"where"` // the file that says so
	Raise string `json:"raise"` // how to raise it; "" if that makes no sense
	Scope string `json:"scope"` // "segment": of one dma-buf; "total": of all memory
}

// Description is an allocator on this machine.
type Description struct {
	Spec     string        `json:"spec"`              // the name that --gpu and Open take: "drm:renderD128"
	Aliases  []string      `json:"aliases,omitempty"` // other names of the same: "drm:vgem"
	Exporter string        `json:"exporter"`          // the dma-buf's exporter as fdinfo shows it: "drm"
	Driver   string        `json:"driver"`            // the kernel driver: "vgem"
	Class    string        `json:"class,omitempty"`   // of a software GPU: the driver that it stands for
	Device   string        `json:"device"`            // the node that is opened: "/dev/dri/card0"
	PCI      *pciaddr.Addr `json:"pci,omitempty"`     // the PCI address of the function behind it
	// Kind is the kind of memory that the program asks the driver for. It does not prove where the
	// bytes are.
	Kind      Kind    `json:"kind"`
	Available bool    `json:"available"`        // the allocator can be used here
	Why       string  `json:"why,omitempty"`    // why it is not available; of "auto": why this one
	Remedy    string  `json:"remedy,omitempty"` // what to change
	MaxSize   int64   `json:"max_size"`         // the bytes of one segment that the exporter allows; 0 if not known
	Limits    []Limit `json:"limits,omitempty"` // what bounds an allocation now
}

// Options of an allocation.
type Options struct {
	// Name is given to the dma-bufs, at most 31 bytes: fdinfo, bufinfo and
	// dmabuf.Inventory show it.
	Name string
	// Force leaves out the checks of MemAvailable, the cgroup, and the limits
	// of exporter and GPU: the kernel decides. If memory cannot hold the size,
	// the kernel runs the OOM killer. If VRAM cannot, most drivers make the
	// buffer in system memory and report success.
	Force bool
	// SegmentSize is the largest size of a segment in bytes, rounded up to a
	// size that the exporter supports; the buffer gets as many dma-bufs as it
	// needs. 0 makes one.
	SegmentSize int64
}

// Allocator makes buffers. Its methods may be called from several goroutines
// at once.
type Allocator interface {
	// Describe says what the allocator is.
	Describe() Description
	// Alloc allocates and exports size bytes of zeroed memory, rounded up to a
	// size that the exporter supports ([Buffer.Size]). After an error nothing
	// stays allocated. The caller closes the Buffer, which does not need the
	// Allocator any more. Errors: failure.ErrRange for a size or an option that
	// is out of range, failure.ErrLimit.
	Alloc(ctx context.Context, size int64, opt Options) (*Buffer, error)
	// Close closes the device; a GPU's node stays open until its last buffer is
	// closed. A second Close does nothing.
	Close() error
}

// Segment is a part of a buffer: Size bytes of a dma-buf from Offset on. The
// Buf belongs to the Buffer.
type Segment struct {
	Buf          *dmabuf.Buf
	Offset, Size int64
	// Addr is the GPU's own address of the segment's first byte, which callers
	// usually choose as the IOVA; 0 if the exporter has none. CUDA, ROCm and
	// Level Zero have one.
	Addr uint64

	// view opens the CPU's view; nil stands for mmap of the dma-buf.
	view func() (part, error)
	// flush is of the whole device; nil if there is no means.
	flush func() error
}
