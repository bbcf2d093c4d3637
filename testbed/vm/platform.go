// SPDX-License-Identifier: Apache-2.0

package vm

import "regexp"

// platform is what a kernel is told because of the processor that it runs on.
type platform struct {
	console string // the serial line that QEMU gives it
	args    []string
	// clock has more for kernels whose processors are emulated; may be nil.
	clock func() []string
	// allow are the kernel's reports that are the machine's fault, not of what runs on it.
	allow []*regexp.Regexp
}

// splitWindow is what a kernel with pages of 16 KiB says while it boots on a machine with
// a second host bridge: QEMU's firmware gives that one 4 KiB of I/O ports, which cannot be
// mapped by themselves then. Nothing here uses I/O ports.
var splitWindow = regexp.MustCompile(`^WARNING: mm/vmalloc\.c:[0-9]+ at vmap_range_noflush\+.* swapper/0/1$`)

var platforms = map[string]platform{
	"amd64": {
		console: "ttyS0",
		args:    []string{"tsc=reliable", "random.trust_cpu=on", "no_timer_check"},
		clock:   counterRate,
	},
	"arm64": {console: "ttyAMA0", allow: []*regexp.Regexp{splitWindow}},
}

// cmdline are the kernel arguments of every node. An oops ends the machine: what runs
// on after one proves nothing. The console gets warnings and worse while the kernel
// boots, since its serial line is slow, and everything afterwards.
func (p platform) cmdline() []string {
	return append([]string{
		"console=" + p.console, "loglevel=5", "panic=-1", "oops=panic", "mitigations=off", "cryptomgr.notests",
	}, p.args...)
}
