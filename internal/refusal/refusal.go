// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// Cause is a cause of a refusal.
type Cause int

// The causes.
const (
	Open        Cause = iota // the evidence picks none: the detail names those that are possible
	VideoMemory              // the exporter gives other devices no addresses of its video memory
	NoAddresses              // the exporter's map operation gave the kernel nothing
	Gate                     // a rule of the exporter's driver keeps this importer out
	Pinned                   // another importer has pinned the buffer where this one does not reach
	Gone                     // the memory was taken away, or its device is gone
	Unreachable              // the kernel finds no way for peer-to-peer to the memory
	NotForIt                 // the exporter does not give this kind of memory to this kind of importer
)

var causeNames = [...]string{
	"unknown", "video memory is not for other devices", "no addresses from the exporter", "exporter's gate",
	"pinned for another importer", "memory taken away", "no peer-to-peer to the memory", "not supported for this buffer",
}

// String returns the cause in words.
func (c Cause) String() string {
	if c >= 0 && int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("Cause(%d)", int(c))
}

// Evidence is what is known of a refusal, beside what [Machine] has in its files.
type Evidence struct {
	Errno    unix.Errno
	Exporter string // exp_name of the dma-buf's fdinfo: "drm", "nv_dmabuf"; "" if it could not be read
	Module   string // the module that exported it, where a trace has shown that: "nvidia_drm"; "" otherwise

	NIC      string // "mlx5_0"
	Function string // its PCI function, "" without one
	Software bool   // the NIC is emulated by the CPU

	// AtPin: the exporter's pin operation was seen refusing. NoPeer: the
	// exporter was seen turning peer-to-peer down for this importer.
	AtPin, NoPeer bool

	// Attached are the other devices that have the buffer attached, as far as
	// they are known; Unread is why others cannot be ruled out, nil if they are.
	Attached []string
	Unread   error

	Machine Machine
}

// Finding is the cause that the evidence picks, with the remedy, or the causes that
// it leaves possible.
type Finding struct {
	Cause          Cause
	Detail, Remedy string
}

// Find looks for the cause among the rules of the exporter's driver. It is false if
// there is no rule for this driver and errno.
func (e *Evidence) Find() (Finding, bool) {
	x := e.exporter()
	switch e.Errno {
	case unix.ENOMEM, unix.ENOSYS, errno.ENOTSUPP:
		return e.nvidia(x)
	case unix.EINVAL, unix.EBUSY:
		return e.held(x)
	case unix.EOPNOTSUPP:
		return e.unsupported(x)
	case unix.EREMOTEIO:
		return Finding{Unreachable, "the kernel maps no peer-to-peer memory for this NIC", seeMatrix}, true
	case unix.ENODEV:
		return Finding{
			Gone, "the NIC answers, so the exporter refused: it has taken the memory away, or its device is gone or in a reset",
			"allocate the memory anew once its device is back",
		}, true
	}
	return Finding{}, false
}

const (
	seeMatrix = "use a NIC that reaches the memory: `p2pcheck` shows which, and what to change"
	traceIt   = "`dmabuf-reg explain -- COMMAND`, as root, names the driver and the function that refused"
)

// exporter is what is known of a buffer's driver.
type exporter struct {
	driver string   // "nvidia-drm", "amdgpu"; "" if it is not known
	among  []string // the machine's DRM drivers, if it is one of several
	how    string   // how the driver is known, where a trace did not show it
}

func (e *Evidence) exporter() exporter {
	switch {
	case e.Module != "":
		return exporter{driver: strings.ReplaceAll(e.Module, "_", "-")}
	case e.Exporter == "nv_dmabuf":
		return exporter{driver: "nvidia"}
	case e.Exporter == "drm":
		return e.Machine.drm()
	}
	return exporter{driver: strings.ReplaceAll(e.Exporter, "_", "-")}
}

// name is the exporter in words.
func (e *Evidence) name(x exporter) string {
	switch {
	case x.driver != "" && x.how != "":
		return fmt.Sprintf("exporter %s (%s)", x.driver, x.how)
	case x.driver != "":
		return "exporter " + x.driver
	case e.Exporter != "":
		return "exporter " + e.Exporter
	}
	return "the exporter"
}

// nic is the importer in words.
func (e *Evidence) nic() string {
	if e.NIC == "" {
		return "this NIC"
	}
	return e.NIC
}

func list(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}
