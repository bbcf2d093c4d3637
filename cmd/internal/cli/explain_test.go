// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// The text that a command prints for each kind of error.
func TestPrintErrors(t *testing.T) {
	reg := &ibvfd.RegError{
		Device: "rxe0", Route: ibvfd.RouteIoctl, Errno: errno.ENOTSUPP, Earliest: fault.StageAttach, Latest: fault.StageMap,
		Cause: fault.CauseKernelENOTSUPP, Detail: "length 0x1000", Remedy: "use another exporter",
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"operation", &failure.Error{Op: "UDMABUF_CREATE", Device: "/dev/udmabuf", Detail: "2048 ranges", Remedy: "use at most 1024", Err: unix.EINVAL}, `
prog: UDMABUF_CREATE on /dev/udmabuf failed
  what:    2048 ranges
  errno:   EINVAL (22: invalid argument)
  remedy:  use at most 1024
`},
		{"operation with a sentinel", &failure.Error{Op: "alloc", Device: "/dev/udmabuf", Detail: "1 GiB", Remedy: "raise it", Err: failure.ErrLimit}, `
prog: alloc on /dev/udmabuf failed
  what:    1 GiB
  cause:   over the limit: refused beforehand, the kernel was not asked
  errno:   ENOMEM (12: cannot allocate memory)
  remedy:  raise it
`},
		{"registration", reg, `
prog: rxe0 refused the registration
  what:    length 0x1000
  route:   REG_DMABUF_MR ioctl
  stage:   between attach and map: the evidence allows no more; ` + "`dmabuf-reg register --trace`" + ` of the same can tell
  cause:   kernel ENOTSUPP (524)
  errno:   ENOTSUPP (524: operation is not supported (kernel-internal errno))
  remedy:  use another exporter
`},
		{"registration, one of several", &On{"udmabuf with rxe0", fmt.Errorf("whole buffer: %w", &ibvfd.RegError{
			Device: "rxe0", Errno: unix.EINVAL, Cause: fault.CauseBadRange, Detail: "offset 0x1000 + length 0x1 > size 0x1000", Remedy: "stay inside",
		})}, `
prog: udmabuf with rxe0: registration on rxe0: refused beforehand
  what:    offset 0x1000 + length 0x1 > size 0x1000
  stage:   args, proven: refused beforehand, neither library nor kernel was asked
  cause:   bad range
  errno:   EINVAL (22: invalid argument)
  remedy:  stay inside
`},
		{"transfer", &canary.TransferError{Op: "RDMA READ", NIC: "rxe0", Offset: 16, Length: 32, RKey: 0xabc, Remedy: "look there", Err: &ibvfd.WCError{Status: ibvfd.WCRetryExcErr, VendorErr: 0x81}}, `
prog: RDMA READ on rxe0 failed
  what:    32 bytes at offset 0x10, rkey 0xabc
  status:  transport retry counter exceeded (vendor error 0x81)
  remedy:  look there
`},
		{"joined", errors.Join(&On{"a", errors.Join(errors.New("one"), errors.New("two"))}, errors.New("three")), `
prog: a: one
prog: a: two
prog: three
`},
		{"no GID", &failure.Error{Op: "connect", Device: "node2:7471", Remedy: "ask for another", Err: fmt.Errorf("rxe0 port 1: %w: %w: 2 of another family", gid.ErrNone, unix.EADDRNOTAVAIL)}, `
prog: connect on node2:7471 failed
  cause:   no usable GID: 2 of another family
  errno:   EADDRNOTAVAIL (99: cannot assign requested address)
  remedy:  ask for another
`},
		{"joined below", &failure.Error{Op: "connect", Device: "node2:7471", Err: errors.Join(errors.New("no answer"), context.DeadlineExceeded)}, `
prog: connect on node2:7471 failed
  cause:   no answer; context deadline exceeded
`},
		{"usage", &UsageError{errors.New("what?")}, `
prog: what?
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			PrintErrors(&b, "prog", tt.err)
			if got, want := b.String(), tt.want[1:]; got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

func TestKindsAndStatus(t *testing.T) {
	mismatch := &canary.Mismatch{Offset: 7, Count: 1, Expected: canary.HexBytes{1}, Got: canary.HexBytes{2}, Origin: canary.OriginZero, LandedAt: -1}
	for _, tt := range []struct {
		err    error
		kind   string
		status int
	}{
		{&UsageError{errors.New("x")}, KindUsage, ExitUsage},
		{&Unavailable{&failure.Error{Op: "open", Err: unix.ENOENT}}, KindUnavailable, ExitUnavailable},
		{&On{"x", &Unavailable{ibvfd.ErrNotBuilt}}, KindUnavailable, ExitUnavailable},
		{ErrInterrupted, KindInterrupted, ExitInterrupted},
		{errors.Join(ErrInterrupted, context.Canceled), KindInterrupted, ExitInterrupted},
		{&ibvfd.RegError{Errno: unix.EINVAL}, KindRegistration, ExitFailed},
		{&canary.Failure{Report: &canary.Report{}, Err: mismatch}, KindMismatch, ExitFailed},
		{&canary.Failure{Report: &canary.Report{}, Err: &canary.AcceptedError{Op: "RDMA WRITE"}}, KindAccepted, ExitFailed},
		{&canary.TransferError{Err: canary.ErrStalled}, KindTransfer, ExitFailed},
		{&failure.Error{Op: "x", Err: os.ErrClosed}, KindOperation, ExitFailed},
		{errors.New("x"), KindOther, ExitFailed},
	} {
		list := Explain(tt.err)
		if len(list) == 0 || list[0].Kind != tt.kind {
			t.Errorf("Explain(%v) = %+v, want kind %q", tt.err, list, tt.kind)
		}
		if got := Status(tt.err); got != tt.status {
			t.Errorf("Status(%v) = %d, want %d", tt.err, got, tt.status)
		}
		if _, err := json.Marshal(list); err != nil {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
	if Explain(nil) != nil || Status(nil) != ExitOK {
		t.Error("no error is an error")
	}
}
