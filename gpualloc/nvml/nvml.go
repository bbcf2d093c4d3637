// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// The errors of GPUs.
var (
	// ErrNotBuilt means that the program was built without cgo.
	ErrNotBuilt = errors.New("built without cgo: NVML cannot be loaded")
	// ErrNoDriver means that there is no NVML, or no NVIDIA driver for it.
	ErrNoDriver = errors.New("no NVIDIA driver")
)

// Error is an error of NVML.
type Error struct {
	Code int    // nvmlReturn_t
	Text string // nvmlErrorString
}

// Error returns the text and the code.
func (e *Error) Error() string { return fmt.Sprintf("%s (NVML %d)", e.Text, e.Code) }

// GPU is a GPU in NVML's list.
type GPU struct {
	Index  int          `json:"index"`  // NVML's number, in the order of PCI addresses
	Name   string       `json:"name"`   // the product: "NVIDIA H100 80GB HBM3"
	UUID   string       `json:"uuid"`   // "GPU-…", as CUDA's, which is another for a MIG instance
	PCI    pciaddr.Addr `json:"pci"`    // the PCI address
	Memory Usage        `json:"memory"` // the GPU's memory
	// BAR1 is the window through which NICs reach the GPU's memory. The registrations of all processes
	// take parts of it ([Window]). There is none if the GPU has none, or the driver does not report it.
	BAR1 *Usage `json:"bar1,omitempty"`
}

// Usage is the use of a memory by all processes, in bytes.
type Usage struct {
	Total int64 `json:"total"` // the bytes that there are
	Used  int64 `json:"used"`  // the bytes that processes use
}

// Free is Total less Used, in bytes; never negative.
func (u Usage) Free() int64 { return max(0, u.Total-u.Used) }

// gpuPage is what the driver maps in BAR 1 at least.
const gpuPage = 64 << 10

// Window is the part of BAR 1 that dma-bufs of these sizes take, in bytes. When a
// device registers any part of a dma-buf, the driver maps all of the dma-buf, in
// pages of 64 KiB, unless it is mapped already for another registration or device.
func Window(sizes ...int64) int64 {
	var sum int64
	for _, n := range sizes {
		if n > math.MaxInt64-gpuPage-sum {
			return math.MaxInt64
		}
		sum += (n + gpuPage - 1) &^ (gpuPage - 1)
	}
	return sum
}

// CheckBAR1 returns failure.ErrLimit if the free part of BAR 1 is too small for
// dma-bufs of these sizes, in bytes, none of which is registered yet. If BAR1 is
// nil, it returns nil.
func (g GPU) CheckBAR1(sizes ...int64) error {
	need := Window(sizes...)
	if g.BAR1 == nil || need <= g.BAR1.Free() {
		return nil
	}
	what := "a dma-buf takes"
	if len(sizes) != 1 {
		what = fmt.Sprintf("%d dma-bufs take", len(sizes))
	}
	return &failure.Error{
		Op: "register", Device: fmt.Sprintf("%s at %v", g.Name, g.PCI), Err: failure.ErrLimit,
		Detail: fmt.Sprintf("%s %s, where BAR 1 has %s free of %s", what, bytesize.Format(need), bytesize.Format(g.BAR1.Free()), bytesize.Format(g.BAR1.Total)),
		Remedy: "close MRs of other programs, enable resizable BAR in the firmware, register less at a time, or leave out this check (--force): the driver then decides",
	}
}

// CheckBAR1 is [GPU.CheckBAR1] for buffers of any GPUs, none of which is registered
// yet. It ignores buffers of GPUs that NVML does not list. Without NVML it returns
// nil, and the registration shows whether the buffers fit. Errors: failure.ErrLimit.
func CheckBAR1(bufs ...*gpualloc.Buffer) error {
	sizes := map[pciaddr.Addr][]int64{}
	seen := map[uint64]bool{} // inodes
	for _, b := range bufs {
		at, ok := b.PCI()
		if !ok || b.Driver() != "nvidia" {
			continue
		}
		for _, s := range b.Segments() {
			if !seen[s.Buf.Inode()] {
				seen[s.Buf.Inode()] = true
				sizes[at] = append(sizes[at], s.Buf.Size())
			}
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	gpus, err := GPUs()
	if err != nil {
		return nil
	}
	for _, g := range gpus {
		if err := g.CheckBAR1(sizes[g.PCI]...); err != nil {
			return err
		}
	}
	return nil
}

// Peer says whether GPU A reads and writes the memory of GPU B over PCIe or NVLink,
// by NVML. It says nothing about NICs.
type Peer struct {
	A, B        pciaddr.Addr
	Read, Write string // "OK", or why not: "chipset not supported"
}

// OK reports whether both reads and writes work.
func (p Peer) OK() bool { return p.Read == peerOK && p.Write == peerOK }

const peerOK = "OK"

// Confidential reports whether confidential computing is on: false for GPUs that do
// not have it.
//
// Errors: as of [GPUs].
func Confidential() (on bool, err error) { return confidential("") }

// Peers asks NVML about each two GPUs of this machine.
//
// Errors: as of [GPUs].
func Peers() ([]Peer, error) { return peers("") }

// GPUs lists the GPUs of this machine.
//
// Errors: [ErrNotBuilt], [ErrNoDriver], and NVML's own as an [*Error].
func GPUs() ([]GPU, error) { return list("") }
