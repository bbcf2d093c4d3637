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

// What Open answers to a spec that names no allocator, or several.
var (
	ErrUnknownSpec   = errors.New("no such allocator")
	ErrAmbiguousSpec = errors.New("more than one allocator fits")
	ErrUnavailable   = errors.New("allocator not available")
)

// ErrNotInstalled is what a [Runtime] without its library answers
// ([Found.Refuse]): nothing is wrong with it, and "auto" spends no words on it. It
// is [fs.ErrNotExist], too.
var ErrNotInstalled error = notInstalled{}

type notInstalled struct{}

func (notInstalled) Error() string        { return "is not installed" }
func (notInstalled) Is(target error) bool { return target == fs.ErrNotExist }

// Kind says which memory an allocator asks its driver for. It is a request,
// not a proof of where the bytes lie: drivers move buffers.
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

// Env says where the system's trees are. The zero value is the live system;
// tests and offline analysis put them elsewhere.
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
	Bytes int64  `json:"bytes"` // how much it allows now
	Where string `json:"where"` // the file that says so
	Raise string `json:"raise"` // how to raise it, "" if that makes no sense
	Scope string `json:"scope"` // "segment": of one dma-buf; "total": of all memory
}

// Description is an allocator on this machine.
type Description struct {
	Spec      string        `json:"spec"`              // what Open takes: "drm:renderD128"
	Aliases   []string      `json:"aliases,omitempty"` // other specs for the same: "drm:vgem"
	Exporter  string        `json:"exporter"`          // the dma-buf's exporter as fdinfo shows it: "drm"
	Driver    string        `json:"driver"`            // the kernel driver: "vgem"
	Class     string        `json:"class,omitempty"`   // of a software GPU: the driver that it stands for
	Device    string        `json:"device"`            // the node that is opened: "/dev/dri/card0"
	PCI       *pciaddr.Addr `json:"pci,omitempty"`     // the PCI function behind it, if any
	Kind      Kind          `json:"kind"`
	Available bool          `json:"available"`
	Why       string        `json:"why,omitempty"`    // why not available; of "auto": why this one
	Remedy    string        `json:"remedy,omitempty"` // what to change
	MaxSize   int64         `json:"max_size"`         // bytes of one segment that the exporter allows; 0: not known
	Limits    []Limit       `json:"limits,omitempty"` // what bounds an allocation now
}

// Options of an allocation.
type Options struct {
	// Name is given to the dma-bufs, at most 31 bytes: fdinfo, bufinfo and
	// dmabuf.Inventory show it.
	Name string
	// Force skips the checks against MemAvailable, the cgroup, and the limits of
	// exporter and GPU: the kernel is asked. A size that memory cannot hold
	// then wakes the OOM killer, and what VRAM cannot hold is, by most drivers,
	// made in system memory without a word.
	Force bool
	// SegmentSize splits the buffer into dma-bufs of at most that many bytes,
	// rounded up to pages. 0 makes one.
	SegmentSize int64
}

// Allocator makes buffers. Its methods may be called from several goroutines
// at once.
type Allocator interface {
	// Describe says what the allocator is.
	Describe() Description
	// Alloc allocates and exports size bytes, rounded up to what the exporter
	// can do ([Buffer.Size]). All or nothing: after an error nothing stays
	// allocated. The memory is zeroed. The buffers outlive the allocator.
	Alloc(ctx context.Context, size int64, opt Options) (*Buffer, error)
	// Close closes the device; a GPU's node stays open for as long as one of
	// its buffers lives. Closing again does nothing.
	Close() error
}

// Segment is a part of a buffer: Size bytes of a dma-buf from Offset on. The
// Buf belongs to the Buffer.
type Segment struct {
	Buf          *dmabuf.Buf
	Offset, Size int64
	// Addr is the GPU's own address of the segment's first byte, where the
	// exporter has one (CUDA, ROCm, Level Zero): the usual choice of an IOVA.
	Addr uint64

	// view opens the CPU's view; nil stands for mmap of the dma-buf.
	view func() (part, error)
	// flush is of the whole device; nil if there is no means.
	flush func() error
}
