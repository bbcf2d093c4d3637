// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"io"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/testbed/kernel"
	"github.com/gpurdma/gpurdma/testbed/layout"
	"github.com/gpurdma/gpurdma/testbed/machine"
)

// Modules says which RDMA modules a guest uses.
type Modules int

const (
	// Built: those built from kernel/, where they exist.
	Built Modules = iota
	// Stock: Debian's own, and of those built from kernel/ the ones that
	// Debian does not have.
	Stock
	// Patched: those built from kernel/; it is an error when rdma_rxe is
	// not among them.
	Patched
	// Rereg: the same, with the RDMA core and rdma_rxe of kernel/patches/rdma-rereg
	// in the place of others; it is an error when they are not built.
	Rereg
)

// Options say what to boot and how.
type Options struct {
	Tree    layout.Tree
	Kernel  kernel.Kernel
	Machine machine.Machine
	Modules Modules
	Accel   string // "kvm", "tcg" or "icount" (machine.Machine.QEMU); empty: kvm or tcg, probed
	CPUs    int    // of nodes that do not say how many, where they are emulated; 0: machine.DefaultCPUs

	Expose []string // paths of the host the guest must see besides the project
	Allow  []*regexp.Regexp

	Slow       int           // multiplies the limits below and the kernel's own; 0: 1
	BootLimit  time.Duration // to the first command; 0: DefaultBootLimit
	BeatLimit  time.Duration // without a sign of life; 0: DefaultBeatLimit
	RunDir     string        // where logs and results go; empty: a new one under build/vm
	Log        io.Writer     // the kernel's log as it comes; may be nil
	Debug      func(format string, args ...any)
	ExtraArgs  []string // of QEMU
	KernelArgs []string // besides the machine's own
}

// Limits of the watchdog. They are long because several machines may share
// two processors under emulation; no run waits for them unless it hangs.
const (
	DefaultBootLimit = 3 * time.Minute
	DefaultBeatLimit = time.Minute
)

// exposed lists absolute paths to show in the guest, a directory before what
// is in it.
func (o Options) exposed() []string {
	paths := append([]string{o.Tree.Root, o.Tree.Build}, o.Expose...)
	sort.Strings(paths)
	var out []string
	for _, p := range paths {
		p = filepath.Clean(p)
		covered := false
		for _, q := range out {
			covered = covered || p == q || strings.HasPrefix(p, q+"/")
		}
		if !covered {
			out = append(out, p)
		}
	}
	return out
}

func (o Options) debugf(format string, args ...any) {
	if o.Debug != nil {
		o.Debug(format, args...)
	}
}
