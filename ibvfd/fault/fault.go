// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
	"github.com/gpurdma/gpurdma/internal/refusal"
)

// Stage is a step of a registration, in the order in which they happen.
type Stage int

// The stages.
const (
	StageArgs     Stage = iota // our own checks, nothing was called
	StageProvider              // libibverbs and its provider, before any system call
	StageUverbs                // ib_uverbs and the driver's entry, before the memory is looked up
	StageGet                   // dma_buf_get and the size check; for host memory the address check
	StageAttach                // dma_buf_attach: the exporter meets the NIC
	StagePin                   // the exporter pins the buffer; for host memory get_user_pages
	StageMap                   // dma_buf_map_attachment: DMA addresses
	StageDriver                // the NIC's driver and firmware
)

var stageNames = [...]string{"args", "provider", "uverbs", "get", "attach", "pin", "map", "driver"}

// String returns the stage's name: "attach".
func (s Stage) String() string { return enum.Name(stageNames[:], int(s), "Stage") }

// MarshalText makes a Stage a string in JSON.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Cause is why a registration was refused, as far as the evidence goes.
type Cause int

// The causes.
const (
	CauseUnknown        Cause = iota // the errno fits none of the others
	CauseNoProviderOp                // libibverbs' provider has no reg_dmabuf_mr; the kernel was not asked
	CauseNoDriverOp                  // the kernel's driver has no reg_user_mr_dmabuf, or refuses every dma-buf
	CauseNoMethod                    // no REG_DMABUF_MR: a kernel before Linux 5.12, or an ib_uverbs that is not the kernel's own
	CauseBadRange                    // length 0, overflow, or past the end
	CauseAlignment                   // offset and IOVA differ within a page
	CauseAccess                      // access flags that are not allowed, or not together
	CauseNotDMABuf                   // the descriptor is open, and is something else
	CauseClosedFD                    // the descriptor is not open
	CausePermission                  // EPERM or EACCES
	CauseMemlock                     // over RLIMIT_MEMLOCK
	CauseNoMemory                    // ENOMEM otherwise
	CauseKernelENOTSUPP              // errno 524: exporter or driver does not support the combination
	CauseNotSupported                // EOPNOTSUPP although driver and provider have the op: this buffer or these parameters
	CauseFault                       // EFAULT: the memory cannot be pinned
	CauseDeviceGone                  // EIO, ENODEV: the device was removed
	CauseNoPeerClient                // peer-direct without a peer-memory client in the kernel
	CauseVideoMemory                 // the exporter maps no video memory for other devices (nvidia-drm)
	CauseNoAddresses                 // the exporter's map operation gave the kernel nothing
	CauseGate                        // a rule of the exporter's driver refuses this NIC (NVIDIA's, errno 524)
	CausePinned                      // another NIC has pinned the buffer where this one does not reach
	CauseGone                        // ENODEV: the exporter has taken the memory away
	CauseUnreachable                 // the kernel finds no way for peer-to-peer to the memory
)

var causeNames = [...]string{
	"unknown", "no provider op", "no driver op", "no uverbs method", "bad range", "alignment", "access flags",
	"not a dma-buf", "closed fd", "permission", "memlock limit", "out of memory", "kernel ENOTSUPP (524)",
	"not supported for this buffer", "memory cannot be pinned", "device gone",
	"no peer-memory client", refusal.VideoMemory.String(), refusal.NoAddresses.String(), refusal.Gate.String(),
	refusal.Pinned.String(), refusal.Gone.String(), refusal.Unreachable.String(),
}

// String returns the cause in words: "no driver op".
func (c Cause) String() string { return enum.Name(causeNames[:], int(c), "Cause") }

// MarshalText makes a Cause a string in JSON.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is MarshalText's inverse.
func (c *Cause) UnmarshalText(text []byte) error {
	i := slices.Index(causeNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no cause of a refusal", text)
	}
	*c = Cause(i)
	return nil
}
