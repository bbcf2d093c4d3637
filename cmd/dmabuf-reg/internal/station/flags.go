// SPDX-License-Identifier: Apache-2.0

package station

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/options"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Host is the --gpu of host memory that no exporter makes.
const Host = buffer.Host

// Policy says whether a buffer may be staged.
type Policy memory.Policy

var policies = options.Choices[memory.Policy]{
	{"direct", memory.DirectOnly},
	{"prefer", memory.PreferDirect},
	{"staged", memory.StagedOnly},
}

// Set implements pflag.Value.
func (f *Policy) Set(s string) error { return policies.Set((*memory.Policy)(f), "policy", s) }

// String implements pflag.Value.
func (f *Policy) String() string { return policies.Name(memory.Policy(*f)) }

// Type implements pflag.Value.
func (f *Policy) Type() string { return "POLICY" }

// Flags are what both sides of a connection are given.
type Flags struct {
	GPU, NIC      string
	Size          cli.Size
	Policy        Policy
	peerDirect    bool
	force         bool
	Cert, key, ca string
	Plaintext     bool
	trace         bool
	Timeout       time.Duration
	port          int
	gid           nics.GID
}

// Add adds the flags to a command, without --policy.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	cli.OnceVar(cmd, &f.GPU, "gpu", "SPEC", "auto", "allocator: a spec that dmabuf-reg devices lists, auto, or host for memory of the host")
	cli.OnceVar(cmd, &f.NIC, "nic", "NIC", "auto", "RDMA device, or several with commas, with a rail for each; auto picks the nearest that registers dma-bufs and says why")
	f.Size = 4 << 20
	flags.Var(&f.Size, "size", "bytes to allocate")
	f.AddPath(cmd)
	f.AddProtection(cmd, 30*time.Second, "how long one step may take")
	options.CompleteGPU(cmd, Host)
	nics.CompleteSeveral(cmd)
}

// AddPolicy adds --policy.
func (f *Flags) AddPolicy(cmd *cobra.Command) {
	cmd.Flags().Var(&f.Policy, "policy", "direct (a refused registration is an error), prefer (staged if it is refused) or staged")
	options.CompleteWords(cmd, "policy", policies.Names()...)
}

func (f *Flags) check() error {
	if _, err := f.Size.Int64(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if f.port < 0 || f.port > 255 {
		return &cli.UsageError{Err: fmt.Errorf("--port must be 1 to 255, not %d", f.port)}
	}
	if f.Timeout <= 0 {
		return &cli.UsageError{Err: fmt.Errorf("--timeout must be more than 0, not %v", f.Timeout)}
	}
	return nil
}

// tls is the configuration of mutual TLS, nil if none was asked for.
func (f *Flags) tls() (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil
	}
	refused := func(file string, err error) error {
		return &failure.Error{Op: "load a certificate", Device: file, Remedy: "give PEM files that this user may read: --tls-cert and its --tls-key, and --tls-ca", Err: err}
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.key)
	if err != nil {
		return nil, refused(f.Cert+", "+f.key, err)
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, refused(f.ca, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, refused(f.ca, errors.New("no certificate in it"))
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

// Protection is how an exchange at an address is protected: TLS, loopback or none.
func (f *Flags) Protection(addr net.Addr) string {
	switch t, ok := addr.(*net.TCPAddr); {
	case f.Cert != "":
		return "TLS"
	case ok && t.IP.IsLoopback():
		return "loopback"
	}
	return "none"
}

// Several reports whether --nic names several NICs, and a connection has a rail for each.
func (f *Flags) Several() bool { return strings.Contains(f.NIC, ",") }

// CheckSeveral refuses options that cannot be meant for several NICs.
func (f *Flags) CheckSeveral(addr string) error {
	refuse := func(text string) error { return &cli.UsageError{Err: errors.New(text)} }
	names, err := nics.Names(f.NIC)
	switch {
	case err != nil || len(names) == 1:
		return err
	case strings.HasPrefix(addr, OverCM):
		return refuse(fmt.Sprintf("%s: a connection of rdma_cm's goes over one NIC, and --nic names %d: write HOST:PORT, or one NIC", addr, len(names)))
	case f.gid.Wish.NetDev != "":
		return refuse("--gid " + f.gid.Text + ": a network device is of one NIC, and --nic names several: leave dev= out, or choose by a network, v1, v2, ipv4, ipv6 or vlan=N")
	case f.gid.Wish.Subnet.IsValid() && f.gid.Wish.Subnet.IsSingleIP():
		return refuse("--gid " + f.gid.Text + ": an address is of one NIC, and --nic names several: write a network that all of them are in, as 10.0.0.0/8")
	}
	return nil
}
