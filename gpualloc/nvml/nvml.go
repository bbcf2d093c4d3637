// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/bytesize"
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

func (e *Error) Error() string { return fmt.Sprintf("%s (NVML %d)", e.Text, e.Code) }

// GPU is one GPU.
type GPU struct {
	Index  int              `json:"index"` // NVML's, in the order of PCI addresses
	Name   string           `json:"name"`  // "NVIDIA H100 80GB HBM3"
	UUID   string           `json:"uuid"`  // "GPU-…", as CUDA's
	PCI    gpualloc.PCIAddr `json:"pci"`
	Memory Usage            `json:"memory"`
	// BAR1 is the window through which NICs reach the GPU's memory. Everything
	// that is registered takes a part of it, with all processes together. A GPU
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

// CheckBAR1 refuses beforehand what the free part of BAR 1 cannot hold: need is
// all that is going to be registered, in bytes, rounded up to the GPU's pages of
// 64 KiB each time. Without BAR 1 there is nothing to check. Errors:
// dmabuf.ErrLimit.
func (g GPU) CheckBAR1(need int64) error {
	if g.BAR1 == nil || need <= g.BAR1.Free() {
		return nil
	}
	return &dmabuf.Error{
		Op: "register", Device: g.UUID, Err: dmabuf.ErrLimit,
		Detail: fmt.Sprintf("%s, where BAR 1 has %s free of %s", bytesize.Format(need), bytesize.Format(g.BAR1.Free()), bytesize.Format(g.BAR1.Total)),
		Remedy: "close MRs of other programs, enable resizable BAR in the firmware, or register less at a time",
	}
}

// Peer is what NVML says of two GPUs: whether the one reads and writes the
// other's memory over PCIe or NVLink. It says nothing of NICs.
type Peer struct {
	A, B        gpualloc.PCIAddr
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
