// SPDX-License-Identifier: Apache-2.0

package station

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The error of a certificate that cannot be used names its file.
func TestTLSFiles(t *testing.T) {
	dir := testenv.Certificates(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	f := Flags{Cert: file("a.pem"), key: file("a.key"), ca: file("ca.pem")}
	if cfg, err := f.tls(); err != nil || cfg == nil || cfg.ClientCAs == nil || cfg.RootCAs == nil {
		t.Errorf("%+v, %v", cfg, err)
	}
	for name, f := range map[string]Flags{
		"another's key":  {Cert: file("a.pem"), key: file("b.key"), ca: file("ca.pem")},
		"no such file":   {Cert: file("c.pem"), key: file("c.key"), ca: file("ca.pem")},
		"no certificate": {Cert: file("a.pem"), key: file("a.key"), ca: file("a.key")},
	} {
		if _, err := f.tls(); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--tls-ca") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckAddr(t *testing.T) {
	for addr, says := range map[string]string{
		"10.0.0.1:7471": "", "[fe80::1%eth0]:7471": "", "gpu-7:0": "", "rdma_cm://10.0.0.1:65535": "", ":7471": "",
		"10.0.0.1": "write HOST:PORT", "": "write HOST:PORT", "fe80::1:7471": "write HOST:PORT", "rdma_cm://10.0.0.1": "write HOST:PORT",
		"10.0.0.1:": "has no port", "10.0.0.1:65536": "a port is 0 to 65535", "10.0.0.1:-1": "a port is 0 to 65535",
		"10.0.0.1:99999999999999999999": "a port is 0 to 65535", "rdma_cm://10.0.0.1:abc": `"abc" is no port`, "10.0.0.1:no such": `"no such" is no port`,
	} {
		err := CheckAddr(addr)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", addr, err, says)
		}
	}
}

// Options that are of one NIC are refused with several, and taken with one.
func TestSeveralNICsAndOptions(t *testing.T) {
	for _, c := range []struct{ addr, gid, says string }{
		{"10.0.0.1:7471", "", ""},
		{"10.0.0.1:7471", "v2,ipv4,10.0.0.0/8,vlan=none", ""},
		{"rdma_cm://10.0.0.1:7471", "", "a connection of rdma_cm's goes over one NIC"},
		{"10.0.0.1:7471", "10.0.0.1", "--gid 10.0.0.1: an address is of one NIC"},
		{"10.0.0.1:7471", "fe80::1", "an address is of one NIC"},
		{"10.0.0.1:7471", "v2,dev=eth0", "--gid v2,dev=eth0: a network device is of one NIC"},
	} {
		f := Flags{NIC: "mlx5_0,mlx5_1"}
		if c.gid != "" {
			if err := f.gid.Set(c.gid); err != nil {
				t.Fatal(err)
			}
		}
		err := f.CheckSeveral(c.addr)
		var usage *cli.UsageError
		if (c.says == "") != (err == nil) || err != nil && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q, --gid %q: %v", c.addr, c.gid, err)
		}
		if f.NIC = "mlx5_0"; f.CheckSeveral(c.addr) != nil {
			t.Errorf("%q, --gid %q with one NIC: %v", c.addr, c.gid, f.CheckSeveral(c.addr))
		}
	}
}
