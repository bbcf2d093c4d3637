// SPDX-License-Identifier: Apache-2.0

package station

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// AddProtection adds the flags of TLS, and --timeout, to a command. usage is the help of --timeout.
func (f *Flags) AddProtection(cmd *cobra.Command, timeout time.Duration, usage string) {
	flags := cmd.Flags()
	flags.StringVar(&f.Cert, "tls-cert", "", "certificate of this side, PEM")
	flags.StringVar(&f.key, "tls-key", "", "its key, PEM")
	flags.StringVar(&f.ca, "tls-ca", "", "certificates by which the other side's is trusted, PEM")
	flags.BoolVar(&f.Plaintext, "plaintext", false, "exchange keys in the clear with other machines: every program that sees them can read and write the buffers")
	flags.DurationVar(&f.Timeout, "timeout", timeout, usage)
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key", "tls-ca")
	cmd.MarkFlagsMutuallyExclusive("plaintext", "tls-cert")
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca"} {
		_ = cmd.MarkFlagFilename(name, "pem", "crt", "key")
	}
}

// AddPath adds the flags of registration, and of the choice of port and GID.
func (f *Flags) AddPath(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.force, "force", false, "allocate even if the memory seems not to be there; the kernel's OOM killer may disagree")
	flags.BoolVar(&f.peerDirect, "peer-direct", false, "where no dma-buf can be registered, register the memory by its device pointer, for a peer-memory client such as nvidia-peermem")
	flags.BoolVar(&f.trace, "trace", false, "trace the registration here and say where this side's bytes are, or which function refused (needs root)")
	flags.IntVar(&f.port, "port", 0, "port of the NIC, or of each, to connect over, counted from 1 (default: an active one)")
	flags.Var(&f.gid, "gid", "GID of that port to connect from: an address or a network, v1, v2, ipv4, ipv6, dev=NETDEV, vlan=N (default: what TCP goes through, or what reaches the other side's)")
}

// Check refuses values that no side can have.
func (f *Flags) Check() error { return f.check() }

// TLS is the configuration of mutual TLS, nil if none was asked for.
func (f *Flags) TLS() (*tls.Config, error) { return f.tls() }

// Traced reports whether --trace was given.
func (f *Flags) Traced() bool { return f.trace }

// Granted refuses a --gid that no port of a NIC has.
func (f *Flags) Granted(nic string) error { return f.gid.Granted(nic, f.port) }

// Config returns the settings of connections of package gpurdma.
func (f *Flags) Config() (gpurdma.Config, error) {
	t, err := f.tls()
	return gpurdma.Config{TLS: t, AllowPlaintext: f.Plaintext, Port: f.port, GID: f.gid.Wish, ConnectTimeout: f.Timeout, PeerTimeout: min(f.Timeout, mostSilence)}, err
}

// OnFabric makes the memory of --gpu, and registers it with a Fabric. The caller closes the Buffer, and then
// the memory.
func (f *Flags) OnFabric(ctx context.Context, fab *gpurdma.Fabric) (b *gpurdma.Buffer, d buffer.Description, closeMemory func() error, err error) {
	fab.SetMaxPinned(2*int64(f.Size) + 8*pinnedFor)
	if f.GPU == Host {
		b, err = fab.Alloc(ctx, Host, int64(f.Size))
		return b, hostMemory(int64(f.Size)), func() error { return nil }, err
	}
	src, err := buffer.Allocate(ctx, f.GPU, int64(f.Size), f.force)
	if err != nil {
		return nil, d, func() error { return nil }, orHost(err)
	}
	var opts []gpurdma.BufferOption
	switch memory.Policy(f.Policy) {
	case memory.DirectOnly:
		opts = append(opts, gpurdma.DirectOnly())
	case memory.StagedOnly:
		opts = append(opts, gpurdma.StagedOnly())
	}
	if f.peerDirect {
		opts = append(opts, gpurdma.PeerDirect())
	}
	b, err = fab.Register(ctx, src.Alloc, opts...)
	return b, src.Description, src.Close, err
}
