// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// What GPUs answers instead of a list.
var (
	// ErrNotBuilt: the program was built without cgo.
	ErrNotBuilt = errors.New("built without cgo: NVML cannot be loaded")
	// ErrNoDriver: there is no NVML, or no NVIDIA driver below it.
	ErrNoDriver = errors.New("no NVIDIA driver")
)

// Error is a refusal of NVML's own.
type Error struct {
	Code int    // nvmlReturn_t
	Text string // nvmlErrorString
}

// Error is NVML's text with its number.
func (e *Error) Error() string { return fmt.Sprintf("%s (NVML %d)", e.Text, e.Code) }

// GPU is one GPU.
type GPU struct {
	Index  int          `json:"index"` // NVML's, in the order of PCI addresses
	Name   string       `json:"name"`  // "NVIDIA H100 80GB HBM3"
	UUID   string       `json:"uuid"`  // "GPU-…", as CUDA's, which is another for a MIG instance
	PCI    pciaddr.Addr `json:"pci"`
	Memory Usage        `json:"memory"`
	// BAR1 is the window through which NICs reach the GPU's memory. Everything
	// that is registered takes a part of it (Window), with all processes together. A GPU
	// without one, or a driver that does not say, leaves nil.
	BAR1 *Usage `json:"bar1,omitempty"`
}

// Usage is of all processes, in bytes.
type Usage struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
}

// Free is what is left.
func (u Usage) Free() int64 { return max(0, u.Total-u.Used) }

// gpuPage is what the driver maps in BAR 1 at least.
const gpuPage = 64 << 10

// Window is how much of BAR 1 dma-bufs of these sizes take, in bytes. The driver
// maps a dma-buf when the first device registers any part of it: all of it, in pages
// of 64 KiB, and once, however many registrations and devices there are then.
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

// CheckBAR1 refuses beforehand what the free part of BAR 1 cannot hold: dma-bufs of
// these sizes, in bytes, of which nothing is registered yet. Without BAR 1 there is
// nothing to check. Errors: dmabuf.ErrLimit.
func (g GPU) CheckBAR1(sizes ...int64) error {
	need := Window(sizes...)
	if g.BAR1 == nil || need <= g.BAR1.Free() {
		return nil
	}
	what := "a dma-buf takes"
	if len(sizes) != 1 {
		what = fmt.Sprintf("%d dma-bufs take", len(sizes))
	}
	return &dmabuf.Error{
		Op: "register", Device: fmt.Sprintf("%s at %v", g.Name, g.PCI), Err: dmabuf.ErrLimit,
		Detail: fmt.Sprintf("%s %s, where BAR 1 has %s free of %s", what, bytesize.Format(need), bytesize.Format(g.BAR1.Free()), bytesize.Format(g.BAR1.Total)),
		Remedy: "close MRs of other programs, enable resizable BAR in the firmware, register less at a time, or force it: the driver then answers",
	}
}

// CheckBAR1 is [GPU.CheckBAR1] for buffers of any GPUs, none of them registered yet.
// Buffers of other drivers need no BAR 1 that NVML knows; where it does not answer,
// the registration will. Errors: dmabuf.ErrLimit.
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

// Peer is what NVML says of two GPUs: whether the one reads and writes the
// other's memory over PCIe or NVLink. It says nothing of NICs.
type Peer struct {
	A, B        pciaddr.Addr
	Read, Write string // "OK", or why not: "chipset not supported"
}

// OK reports that both ways work.
func (p Peer) OK() bool { return p.Read == peerOK && p.Write == peerOK }

const peerOK = "OK"

// Confidential reports whether confidential computing is on. GPUs that have
// none are no error.
//
// Errors: as of [GPUs].
func Confidential() (on bool, err error) { return confidential("") }

// Peers asks of each two GPUs of this machine.
//
// Errors: as of [GPUs].
func Peers() ([]Peer, error) { return peers("") }

// GPUs lists the GPUs of this machine.
//
// Errors: [ErrNotBuilt]; [ErrNoDriver]; what NVML refuses, with its [Error].
func GPUs() ([]GPU, error) { return list("") }
