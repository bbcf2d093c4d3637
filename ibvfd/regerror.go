// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// RegError is a refused registration, of which nothing stayed, or a refused
// re-registration, which left the MR as it was.
//
// The refusal lies between Earliest and Latest, both included: the evidence
// proves no more than that. They are equal where one stage is proven, by our own checks
// or by asking the kernel the same with fd -1.
type RegError struct {
	Device   string     // "rxe0"
	Route    Route      // the route that was refused; "" if none was taken
	Attr     MRAttr     // the request
	Rereg    bool       // [MR.Rereg] asked for it
	Errno    unix.Errno // the answer; EINVAL and the like where our own checks refused
	Earliest fault.Stage
	Latest   fault.Stage
	Cause    fault.Cause
	Detail   string // the numbers that matter
	Remedy   string // a change that helps, if there is one

	err error // what Unwrap returns beside the errno
}

// Error says all of it in one line:
//
//	register 0x2000 bytes at offset 0 of fd 7 on rxe0 by REG_DMABUF_MR ioctl: refused at uverbs: no driver op: …: EOPNOTSUPP (95: …); …
func (e *RegError) Error() string {
	var b strings.Builder
	if e.Rereg {
		b.WriteString("re-")
	}
	fmt.Fprintf(&b, "register %s on %s", e.Attr.what(), e.Device)
	if e.Route != "" {
		fmt.Fprintf(&b, " by %s", e.Route)
	}
	fmt.Fprintf(&b, ": refused %s: %v", e.where(), e.Cause)
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.Errno != 0 {
		fmt.Fprintf(&b, ": %s", errno.Text(e.Errno))
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; %s", e.Remedy)
	}
	return b.String()
}

func (e *RegError) where() string {
	if e.Earliest == e.Latest {
		return "at " + e.Earliest.String()
	}
	return fmt.Sprintf("between %v and %v", e.Earliest, e.Latest)
}

// Unwrap gives errors.Is and errors.As the errno and, where there is one, the
// sentinel: failure.ErrRange, dmabuf.ErrNotDMABuf, os.ErrClosed.
func (e *RegError) Unwrap() []error {
	var list []error
	if e.Errno != 0 {
		list = append(list, e.Errno)
	}
	if e.err != nil {
		list = append(list, e.err)
	}
	return list
}

// Is makes the refusals that no other parameters would avoid
// [errors.ErrUnsupported], and every range error [failure.ErrRange].
func (e *RegError) Is(target error) bool {
	switch e.Cause {
	case fault.CauseNoProviderOp, fault.CauseNoDriverOp, fault.CauseNoMethod, fault.CauseKernelENOTSUPP, fault.CauseNotSupported, fault.CauseNoPeerClient,
		fault.CauseVideoMemory, fault.CauseGate, fault.CauseUnreachable:
		return target == errors.ErrUnsupported
	case fault.CauseBadRange:
		return target == failure.ErrRange
	case fault.CauseNotDMABuf:
		return target == dmabuf.ErrNotDMABuf
	}
	return false
}
