// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Each way in which a connection does not come about says what to change.
func TestUnconnected(t *testing.T) {
	const addr = "10.0.0.1:7471"
	inner := func(err error) error { return &failure.Error{Op: "connect", Device: addr, Err: err} }
	for _, tt := range []struct {
		err    error
		remedy string
	}{
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "start `dmabuf-reg serve --listen " + addr + "`"},
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}), "ip route get"},
		{inner(&failure.Error{Op: "rdma_resolve_addr", Err: syscall.ENETUNREACH}), "ip route get"},
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "gpu-7", IsNotFound: true}}), "the host's address"},
		{inner(&net.DNSError{Err: "timed out", Name: "gpu-7", IsTimeout: true}), "the host's address"},
		{inner(engine.ErrUnsafe), "--plaintext"},
		{inner(context.DeadlineExceeded), "firewalls"},
		{inner(&failure.Error{Op: "read an exchange", Err: engine.ErrMalformed}), "same version"},
		{inner(syscall.ECONNRESET), "TLS"},
		{inner(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), "--tls-ca"},
	} {
		err := unconnected(addr, tt.err)
		list := cli.Explain(err)
		if len(list) != 1 || !strings.Contains(list[0].Remedy, tt.remedy) || list[0].Device != addr || strings.Count(err.Error(), addr) > 2 {
			t.Errorf("%v: %+v", tt.err, list)
		}
	}
	if other := errors.New("other"); !errors.Is(unconnected(addr, other), other) {
		t.Error("another error is lost")
	}
}

// A peer may write into the buffer that it was given, and say so, where a message
// is waited for: that is not one.
func TestNoMessage(t *testing.T) {
	recv, wrote := operation.Recv, operation.RemoteWrite
	for _, tt := range []struct {
		name string
		kind int
		c    operation.Completion
		bad  bool
	}{
		{"a message", ctlIn, operation.Completion{Op: recv, Len: talk.MaxMessage}, false},
		{"a message that is too long", ctlIn, operation.Completion{Op: recv, Len: talk.MaxMessage + 1}, true},
		{"a write", ctlIn, operation.Completion{Op: wrote, Len: 64}, true},
		{"a write of 4 GiB", ctlIn, operation.Completion{Op: wrote, Len: 1<<32 - 1}, true},
		{"data", dataIn, operation.Completion{Op: recv, Len: 64}, false},
		{"a write in the place of data", dataIn, operation.Completion{Op: wrote, Len: 64}, true},
		{"a write of one's own", dataOut, operation.Completion{Op: operation.Write, Len: 64}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &Line{Want: 64}
			l.marks[tt.kind] = mark{line: l, kind: tt.kind}
			tt.c.Context = &l.marks[tt.kind]
			l.Pull = func(context.Context) (operation.Completion, error) { return tt.c, nil }
			if err := l.await(t.Context(), tt.kind, 1); errors.Is(err, talk.ErrMalformed) != tt.bad || (err != nil) != tt.bad || l.odd != 0 {
				t.Errorf("%v, %d odd ones", err, l.odd)
			}
			if tt.kind != ctlIn || !tt.bad {
				return
			}
			if b, err := l.Hear(t.Context()); !errors.Is(err, talk.ErrMalformed) || b != nil {
				t.Errorf("heard %d bytes, %v", len(b), err)
			}
		})
	}
}
