// SPDX-License-Identifier: Apache-2.0

package errno

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestName(t *testing.T) {
	for e, want := range map[unix.Errno]string{
		unix.EINVAL:     "EINVAL",
		unix.EOPNOTSUPP: "EOPNOTSUPP",
		524:             "ENOTSUPP",
		517:             "EPROBE_DEFER",
		3999:            "errno 3999",
	} {
		if got := Name(e); got != want {
			t.Errorf("Name(%d) = %q, want %q", int(e), got, want)
		}
	}
}

func TestText(t *testing.T) {
	for e, want := range map[unix.Errno]string{
		unix.EINVAL: "EINVAL (22: invalid argument)",
		524:         "ENOTSUPP (524: operation is not supported (kernel-internal errno))",
		3999:        "errno 3999 (no name known)",
	} {
		if got := Text(e); got != want {
			t.Errorf("Text(%d) = %q, want %q", int(e), got, want)
		}
	}
}

func TestOf(t *testing.T) {
	e, ok := Of(fmt.Errorf("open: %w", os.NewSyscallError("open", unix.EACCES)))
	if !ok || e != unix.EACCES {
		t.Errorf("Of = %v, %v; want EACCES", e, ok)
	}
	if _, ok := Of(os.ErrClosed); ok {
		t.Error("Of(os.ErrClosed) claims an errno")
	}
}
