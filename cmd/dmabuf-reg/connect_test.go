// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// What people see of serve, connect and bench.
func TestConnectTables(t *testing.T) {
	local := side{
		Memory: allocated{Spec: "drm:renderD128", Exporter: "drm", Kind: "vram", Size: 4 << 20},
		NIC:    "mlx5_0", NICReason: "nearest to 0000:03:00.0", Policy: "prefer", Path: "direct", Route: "ibv_reg_dmabuf_mr", Why: "registered by ibv_reg_dmabuf_mr",
	}
	there := serverSide{Spec: "udmabuf", NIC: "rxe0", Size: 4 << 20, Staged: true, Why: "staged: asked for by --policy"}
	over := overOf(engine.ConnPath{
		NIC: "mlx5_0", Port: 1, GID: netip.MustParseAddr("10.0.0.2"), Peer: netip.MustParseAddr("10.0.0.1"),
		Why: "TCP comes through it: RoCE v2",
	})
	row := func(op, direction string, size int64, ok bool) connectRow {
		r := connectRow{Op: op, Direction: direction, Size: size, Count: 16, Elapsed: time.Millisecond, Rate: float64(size) * 16e3, OK: ok}
		if ok {
			r.Verified = size*16 + behind
		}
		return r
	}
	good := []connectRow{
		row("write", out, 64, true), row("write", in, 64, true), row("read", out, 1<<20, true), row("read", in, 1<<20, true),
		row("send", out, 64, true), row("send", in, 64, true), row("atomic", out, 8, true), row("atomic", in, 8, true),
	}
	tables(t, map[string]result{
		"serve":               &serveResult{Listen: "127.0.0.1:7471", Protection: "loopback", Local: local},
		"serve-plain":         &serveResult{Listen: "10.0.0.1:7471", Protection: "none", Local: local},
		"connect":             &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good, Planned: len(good)},
		"connect-interrupted": &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: good[:3], Planned: len(good), interrupted: true},
		"connect-failed":      &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Rows: append(good[:3:3], row("read", in, 1<<20, false)), Planned: len(good)},
		"connect-at-once":     &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good), interrupted: true},
		"connect-none":        &connectResult{Server: "10.0.0.1:7471", Seed: 42, Local: local, Remote: there, Over: over, Planned: len(good)},
		"bench":               sampleBench(),
	})
}

func TestCheckAddr(t *testing.T) {
	for addr, says := range map[string]string{
		"10.0.0.1:7471": "", "[fe80::1%eth0]:7471": "", "gpu-7:0": "", "rdma_cm://10.0.0.1:65535": "", ":7471": "",
		"10.0.0.1": "write HOST:PORT", "": "write HOST:PORT", "fe80::1:7471": "write HOST:PORT", "rdma_cm://10.0.0.1": "write HOST:PORT",
		"10.0.0.1:": "has no port", "10.0.0.1:65536": "a port is 0 to 65535", "10.0.0.1:-1": "a port is 0 to 65535",
		"10.0.0.1:99999999999999999999": "a port is 0 to 65535", "rdma_cm://10.0.0.1:abc": `"abc" is no port`, "10.0.0.1:no such": `"no such" is no port`,
	} {
		err := checkAddr(addr)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", addr, err, says)
		}
	}
}

// Each way in which a connection does not come about says what to change.
func TestUnconnected(t *testing.T) {
	const addr = "10.0.0.1:7471"
	inner := func(err error) error { return &dmabuf.Error{Op: "connect", Device: addr, Err: err} }
	for _, tt := range []struct {
		err    error
		remedy string
	}{
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "start `dmabuf-reg serve --listen " + addr + "`"},
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}), "ip route get"},
		{inner(&dmabuf.Error{Op: "rdma_resolve_addr", Err: syscall.ENETUNREACH}), "ip route get"},
		{inner(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "gpu-7", IsNotFound: true}}), "the host's address"},
		{inner(&net.DNSError{Err: "timed out", Name: "gpu-7", IsTimeout: true}), "the host's address"},
		{inner(engine.ErrUnsafe), "--plaintext"},
		{inner(context.DeadlineExceeded), "firewalls"},
		{inner(&dmabuf.Error{Op: "read an exchange", Err: engine.ErrMalformed}), "same version"},
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
			l := &line{want: 64}
			l.marks[tt.kind] = mark{line: l, kind: tt.kind}
			tt.c.Context = &l.marks[tt.kind]
			l.pull = func(context.Context) (operation.Completion, error) { return tt.c, nil }
			if err := l.await(t.Context(), tt.kind, 1); errors.Is(err, talk.ErrMalformed) != tt.bad || (err != nil) != tt.bad || l.odd != 0 {
				t.Errorf("%v, %d odd ones", err, l.odd)
			}
			if tt.kind != ctlIn || !tt.bad {
				return
			}
			if b, err := l.hear(t.Context()); !errors.Is(err, talk.ErrMalformed) || b != nil {
				t.Errorf("heard %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	f := &connectFlags{both: true, work: talk.Ops(), bytes: []int64{1, 2}}
	list := f.plan()
	if len(list) != 2*(3*2+1) || list[0] != (planned{talk.Write, out, 1}) || list[1] != (planned{talk.Write, in, 1}) || list[len(list)-1] != (planned{talk.Atomic, in, 8}) {
		t.Errorf("%+v", list)
	}
}

// The error of a certificate that cannot be used names its file.
func TestTLSFiles(t *testing.T) {
	dir := certificates(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	f := stationFlags{cert: file("a.pem"), key: file("a.key"), ca: file("ca.pem")}
	if cfg, err := f.tls(); err != nil || cfg == nil || cfg.ClientCAs == nil || cfg.RootCAs == nil {
		t.Errorf("%+v, %v", cfg, err)
	}
	for name, f := range map[string]stationFlags{
		"another's key":  {cert: file("a.pem"), key: file("b.key"), ca: file("ca.pem")},
		"no such file":   {cert: file("c.pem"), key: file("c.key"), ca: file("ca.pem")},
		"no certificate": {cert: file("a.pem"), key: file("a.key"), ca: file("a.key")},
	} {
		if _, err := f.tls(); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--tls-ca") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// certificates are a CA's and those of two sides, in a directory.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "a", "b"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, IsCA: ca == nil, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if ca == nil {
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		put(name+".pem", "CERTIFICATE", der)
		if der, err = x509.MarshalECPrivateKey(key); err != nil {
			t.Fatal(err)
		}
		put(name+".key", "EC PRIVATE KEY", der)
	}
	return dir
}

func withTLS(dir, name string) []string {
	return []string{"--tls-cert", filepath.Join(dir, name+".pem"), "--tls-key", filepath.Join(dir, name+".key"), "--tls-ca", filepath.Join(dir, "ca.pem")}
}
