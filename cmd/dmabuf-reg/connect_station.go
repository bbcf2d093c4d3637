// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// hostSpec is the --gpu of host memory that no exporter makes.
const hostSpec = "host"

// policyFlag says whether a buffer may be staged.
type policyFlag memory.Policy

var policies = choices[memory.Policy]{
	{"direct", memory.DirectOnly},
	{"prefer", memory.PreferDirect},
	{"staged", memory.StagedOnly},
}

// Set implements pflag.Value.
func (f *policyFlag) Set(s string) error { return policies.set((*memory.Policy)(f), "policy", s) }

func (f *policyFlag) String() string { return policies.name(memory.Policy(*f)) }

// Type implements pflag.Value.
func (f *policyFlag) Type() string { return "POLICY" }

// stationFlags are what both sides of a connection are given.
type stationFlags struct {
	gpu, nic      string
	size          cli.Size
	policy        policyFlag
	peerDirect    bool
	force         bool
	cert, key, ca string
	plaintext     bool
	trace         bool
	timeout       time.Duration
	port          int
	gid           gidFlag
}

func (f *stationFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	cli.OnceVar(cmd, &f.gpu, "gpu", "SPEC", "auto", "allocator: a spec that dmabuf-reg devices lists, auto, or host for memory of the host")
	cli.OnceVar(cmd, &f.nic, "nic", "NIC", "auto", "RDMA device, or several with commas, with a rail for each; auto picks the nearest that registers dma-bufs and says why")
	f.size = 4 << 20
	flags.Var(&f.size, "size", "bytes to allocate")
	flags.BoolVar(&f.force, "force", false, "allocate even if the memory seems not to be there; the kernel's OOM killer may disagree")
	flags.BoolVar(&f.peerDirect, "peer-direct", false, "where no dma-buf can be registered, register the memory by its device pointer, for a peer-memory client such as nvidia-peermem")
	flags.BoolVar(&f.trace, "trace", false, "trace the registration here and say where this side's bytes are, or which function refused (needs root)")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of this side, PEM")
	flags.StringVar(&f.key, "tls-key", "", "its key, PEM")
	flags.StringVar(&f.ca, "tls-ca", "", "certificates by which the other side's is trusted, PEM")
	flags.BoolVar(&f.plaintext, "plaintext", false, "exchange keys in the clear with other machines: every program that sees them can read and write the buffers")
	flags.IntVar(&f.port, "port", 0, "port of the NIC, or of each, to connect over, counted from 1 (default: an active one)")
	flags.Var(&f.gid, "gid", "GID of that port to connect from: an address or a network, v1, v2, ipv4, ipv6, dev=NETDEV, vlan=N (default: what TCP goes through, or what reaches the other side's)")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long one step may take")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key", "tls-ca")
	cmd.MarkFlagsMutuallyExclusive("plaintext", "tls-cert")
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca"} {
		_ = cmd.MarkFlagFilename(name, "pem", "crt", "key")
	}
	completeGPU(cmd, hostSpec)
	completeNICs(cmd)
}

func (f *stationFlags) addPolicy(cmd *cobra.Command) {
	cmd.Flags().Var(&f.policy, "policy", "direct (a refused registration is an error), prefer (staged if it is refused) or staged")
	completeWords(cmd, "policy", policies.names()...)
}

func (f *stationFlags) check() error {
	if _, err := f.size.Int64(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if f.port < 0 || f.port > 255 {
		return &cli.UsageError{Err: fmt.Errorf("--port must be 1 to 255, not %d", f.port)}
	}
	if f.timeout <= 0 {
		return &cli.UsageError{Err: fmt.Errorf("--timeout must be more than 0, not %v", f.timeout)}
	}
	return nil
}

// tls is the configuration of mutual TLS, nil if none was asked for.
func (f *stationFlags) tls() (*tls.Config, error) {
	if f.cert == "" {
		return nil, nil
	}
	refused := func(file string, err error) error {
		return &dmabuf.Error{Op: "load a certificate", Device: file, Remedy: "give PEM files that this user may read: --tls-cert and its --tls-key, and --tls-ca", Err: err}
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, refused(f.cert+", "+f.key, err)
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

// side is one side's memory and NICs, and how the NICs reach the memory. The fields from Path to Failure
// are those of the first NIC that reaches it.
type side struct {
	Memory    allocated `json:"memory"`
	NIC       string    `json:"nic"` // all names, with commas
	NICReason string    `json:"nic_reason"`
	Policy    string    `json:"policy"`
	Path      string    `json:"path"`  // direct, moved, staged, host
	Route     string    `json:"route"` // how it was registered; "" if staged
	Why       string    `json:"why"`   // in words
	// Placement is where the bytes were when they had been registered, Failure which
	// kernel function refused that; null without --trace.
	Placement     *placement.Placement `json:"placement"`
	Failure       *trace.Failure       `json:"failure"`
	Registrations []registration       `json:"registrations"` // one for each NIC
}

// station is one side of a connection: a buffer, its NICs, and an endpoint, or a set of them.
type station struct {
	side
	timeout time.Duration
	src     *source // nil for host memory
	peer    bool    // its device pointers may be registered
	nics    []*memory.NIC
	bufs    []*memory.Buffer       // one for each NIC
	buf     *memory.Buffer         // the first, for the CPU
	ep      *engine.Endpoint       // of one NIC
	set     *rails.Set             // of several
	opt     engine.EndpointOptions // of their connections
	ln      *rails.Listener
	tell    func(format string, args ...any) // says on stderr what happens to rails
}

const (
	maxAtOnce = 256 // messages that may be received, and operations under way
	pinnedFor = 32 << 20
)

// open makes a station. The caller closes it.
func (f *stationFlags) open(ctx context.Context, opt engine.EndpointOptions) (_ *station, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if opt.TLS, err = f.tls(); err != nil {
		return nil, err
	}
	if err := needLibrary(); err != nil {
		return nil, err
	}
	s := &station{timeout: f.timeout, peer: f.peerDirect}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if f.gpu == hostSpec {
		s.Memory = allocated{Spec: hostSpec, Kind: gpualloc.KindSystem.String(), Requested: int64(f.size), Size: int64(f.size)}
	} else {
		if s.src, err = allocate(ctx, f.gpu, int64(f.size), f.force); err != nil {
			return nil, err
		}
		s.Memory = s.src.allocated
	}
	if err := s.openNICs(f); err != nil {
		return nil, err
	}
	opt.AllowPlaintext, opt.ConnectTimeout, opt.Depth = f.plaintext, f.timeout, maxAtOnce
	opt.Port, opt.GID, opt.Hello = f.port, f.gid.wish, greeting(len(s.nics))
	if f.several() {
		// If NewSet fails, it closes the NICs: there must be no buffer yet.
		if s.set, err = rails.NewSet(s.nics, maxClients*rails.Most); err != nil {
			return nil, err
		}
		opt.MaxPeers, opt.MaxConns, opt.MailDepth, opt.MailSize = 0, opt.MaxPeers, mailDepth, mailSize
		opt.PeerTimeout = min(f.timeout, mostSilence)
		s.opt = opt
	}
	if err := s.register(ctx, memory.Policy(f.policy), f.trace); err != nil {
		return nil, err
	}
	s.describe()
	if s.set != nil {
		return s, nil
	}
	opt.RecvDepth = maxAtOnce + 2
	// A peer that is not ready yet is waited for, 10.24 ms at a time, until
	// --timeout.
	opt.Connect = ibvfd.ConnectAttr{RNRRetry: 7, MinRNRTimer: 20}
	s.ep, err = engine.NewEndpoint(s.nics[0], opt)
	return s, err
}

// openNICs opens the NICs of --nic.
func (s *station) openNICs(f *stationFlags) error {
	names, err := nicNames(f.nic)
	if err != nil {
		return err
	}
	var choices []choice
	if f.several() {
		choices, err = pickSeveral(names, s.Memory)
	} else {
		var one choice
		one, err = pickNIC(f.nic, s.Memory)
		choices = []choice{one}
	}
	if err != nil {
		return err
	}
	// Twice the buffer: `bench` has one that is staged beside host memory. Over several NICs
	// connections have memory for messages.
	pinned := 2*s.Memory.Size + pinnedFor
	if f.several() {
		pinned += 4 * maxClients * mailDepth * mailSize
	}
	names = nil
	for _, c := range choices {
		if err := f.gid.granted(c.Name, f.port); err != nil {
			return missing(err)
		}
		n, err := memory.OpenNIC(c.Name, memory.NICOptions{MaxPinned: pinned})
		if err != nil {
			return missing(err)
		}
		s.nics, names = append(s.nics, n), append(names, c.Name)
		s.Registrations = append(s.Registrations, registration{NIC: c.Name, NICReason: c.Why})
	}
	s.NIC, s.NICReason, s.Policy = strings.Join(names, ","), choices[0].Why, f.policy.String()
	return nil
}

func (s *station) close() error {
	var errs []error
	switch {
	case s.ep != nil:
		errs = append(errs, s.ep.Close())
	case s.set != nil:
		if s.ln != nil {
			errs = append(errs, s.ln.Close())
		}
		errs = append(errs, s.set.CloseEndpoints())
	}
	if s.set != nil {
		errs = append(errs, memory.ReleaseAll(s.bufs))
	} else if s.buf != nil {
		errs = append(errs, s.buf.Close())
	}
	for _, n := range s.nics {
		errs = append(errs, n.Close())
	}
	if s.src != nil {
		errs = append(errs, s.src.close())
	}
	return errors.Join(errs...)
}

// unprotected says in the command's words how an exchange is protected.
func unprotected(addr string, err error) error {
	if !errors.Is(err, engine.ErrUnsafe) {
		return err
	}
	return &dmabuf.Error{
		Op: "protect the exchange", Device: addr, Detail: "the address is not a loopback address, and there is no TLS",
		Remedy: "give --tls-cert, --tls-key and --tls-ca, or --plaintext on a network that only trusted machines use", Err: engine.ErrUnsafe,
	}
}
