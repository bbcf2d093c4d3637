// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
)

// faultOf says in which step an error came, and its cause.
func faultOf(step string, err error) *control.Fault {
	var known *control.Fault
	if errors.As(err, &known) {
		return known
	}
	if err == nil {
		return &control.Fault{Cause: control.Stopped, Step: step, Text: "it was ended"}
	}
	return &control.Fault{Cause: CauseOf(err), Step: step, Text: control.Text(oneLine(err))}
}

// oneLine is an error's text without line feeds.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// CauseOf tells what an error of package gpurdma, or of TCP, means for the way between two NICs.
func CauseOf(err error) control.Cause {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	status := func(s ...ibvfd.WCStatus) bool {
		for _, s := range s {
			if errors.Is(err, &ibvfd.WCError{Status: s}) {
				return true
			}
		}
		return false
	}
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var tcp *net.OpError
	var dns *net.DNSError
	var reg *ibvfd.RegError
	switch {
	case is(handshake.ErrSlow, handshake.ErrReplaced):
		return control.TooSlow
	case is(gid.ErrNone):
		return control.NoGID
	case errors.As(err, &reg):
		return control.Memory
	case status(ibvfd.WCRemAccessErr, ibvfd.WCRemInvReqErr, ibvfd.WCRemOpErr):
		return control.Access
	case status(ibvfd.WCRetryExcErr, ibvfd.WCRNRRetryExcErr, ibvfd.WCRespTimeoutErr):
		return control.Timeout
	case errors.As(err, &verification), errors.As(err, &record), is(gpurdma.ErrUnsafe),
		errors.As(err, &tcp) && tcp.Op == "remote error":
		return control.Identity
	case is(gpurdma.ErrRejected, unix.ECONNREFUSED):
		return control.Refused
	case errors.As(err, &dns):
		return control.Name
	case is(unix.ENETDOWN) && !errors.As(err, &tcp): // no port of the NIC is active
		return control.Port
	case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.ENETDOWN):
		return control.NoRoute
	case strings.Contains(err.Error(), "P_Key"):
		return control.Partition
	case strings.Contains(err.Error(), " to RTR: "): // the kernel looks for a way to the peer's GID then
		return control.NoRoute
	case is(context.Canceled):
		return control.Stopped
	case is(context.DeadlineExceeded, os.ErrDeadlineExceeded, unix.ETIMEDOUT):
		return control.Timeout
	case is(unix.ENODEV, unix.EIO):
		return control.Port
	case is(gpurdma.ErrPeerGone, net.ErrClosed, unix.ECONNRESET, unix.EPIPE):
		return control.Gone
	}
	return control.Other
}
