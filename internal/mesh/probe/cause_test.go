// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

func TestCauseOf(t *testing.T) {
	in := func(err error) error { return fmt.Errorf("connect: %w", err) }
	for _, c := range []struct {
		err  error
		want control.Cause
	}{
		{in(handshake.ErrSlow), control.TooSlow},
		{in(gid.ErrNone), control.NoGID},
		{&ibvfd.RegError{}, control.Memory},
		{&gpurdma.OpError{Err: &ibvfd.WCError{Status: ibvfd.WCRemAccessErr}}, control.Access},
		{&gpurdma.OpError{Err: &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}}, control.Timeout},
		{&gpurdma.OpError{Err: &ibvfd.WCError{Status: ibvfd.WCRNRRetryExcErr}}, control.Timeout},
		{in(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), control.Identity},
		{in(tls.RecordHeaderError{}), control.Identity},
		{in(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), control.Identity},
		{in(gpurdma.ErrUnsafe), control.Identity},
		{in(gpurdma.ErrRejected), control.Refused},
		{in(&net.OpError{Op: "dial", Err: unix.ECONNREFUSED}), control.Refused},
		{in(&net.DNSError{Err: "no such host", IsNotFound: true}), control.Name},
		{in(unix.ENETUNREACH), control.NoRoute},
		{in(unix.EHOSTUNREACH), control.NoRoute},
		{errors.New("ibv_modify_qp on rxe0: QP 1 to RTR: EINVAL"), control.NoRoute},
		{errors.New("find the P_Key on mlx5_0: it has none"), control.Partition},
		{in(context.Canceled), control.Stopped},
		{in(context.DeadlineExceeded), control.Timeout},
		{in(os.ErrDeadlineExceeded), control.Timeout},
		{in(unix.ENODEV), control.Port},
		{fmt.Errorf("choose a port on mlx5_0: %w", unix.ENETDOWN), control.Port},
		{in(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.ENETDOWN)}), control.NoRoute},
		{in(gpurdma.ErrPeerClosed), control.Gone},
		{in(unix.ECONNRESET), control.Gone},
		{errors.New("?"), control.Other},
	} {
		if got := CauseOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
	// A fault stays what it is.
	f := &control.Fault{Cause: control.Corrupt, Step: "a", Text: "b"}
	if got := faultOf("c", in(f)); got != f {
		t.Errorf("%+v", got)
	}
}

// Verdicts come through, and a peer's nonsense is a fault.
func TestVerdicts(t *testing.T) {
	f := &control.Fault{Cause: control.Corrupt, Step: "a", Text: "b"}
	if got := decode(encode(f)); *got != *f {
		t.Errorf("%+v", got)
	}
	if got := decode(encode(nil)); got != nil {
		t.Errorf("%+v", got)
	}
	if got := decode([]byte("nonsense")); got == nil || got.Cause != control.Other {
		t.Errorf("%+v", got)
	}
}
