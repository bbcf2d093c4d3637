// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
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
	cli.OnceVar(cmd, &f.nic, "nic", "NIC", "auto", "RDMA device; auto picks the nearest that registers dma-bufs and says why")
	f.size = 4 << 20
	flags.Var(&f.size, "size", "bytes to allocate")
	flags.BoolVar(&f.force, "force", false, "allocate even if the memory seems not to be there; the kernel's OOM killer may disagree")
	flags.BoolVar(&f.peerDirect, "peer-direct", false, "where no dma-buf can be registered, register the memory by its device pointer, for a peer-memory client such as nvidia-peermem")
	flags.BoolVar(&f.trace, "trace", false, "trace the registration here and say where this side's bytes are, or which function refused (needs root)")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of this side, PEM")
	flags.StringVar(&f.key, "tls-key", "", "its key, PEM")
	flags.StringVar(&f.ca, "tls-ca", "", "certificates by which the other side's is trusted, PEM")
	flags.BoolVar(&f.plaintext, "plaintext", false, "exchange keys in the clear with other machines: whoever listens can read and write the buffers")
	flags.IntVar(&f.port, "port", 0, "port of the NIC to connect over, counted from 1 (default: an active one)")
	flags.Var(&f.gid, "gid", "GID of that port to connect from: an address or a network, v1, v2, ipv4, ipv6, dev=NETDEV, vlan=N (default: what TCP goes through, or what reaches the other side's)")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long one step may take")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key", "tls-ca")
	cmd.MarkFlagsMutuallyExclusive("plaintext", "tls-cert")
	for _, name := range []string{"tls-cert", "tls-key", "tls-ca"} {
		_ = cmd.MarkFlagFilename(name, "pem", "crt", "key")
	}
	completeSpecs(cmd, hostSpec)
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

// side is one side's memory and NIC, and how the one reaches the other.
type side struct {
	Memory    allocated `json:"memory"`
	NIC       string    `json:"nic"`
	NICReason string    `json:"nic_reason"`
	Policy    string    `json:"policy"`
	Path      string    `json:"path"`  // direct, moved, staged, host
	Route     string    `json:"route"` // how it was registered; "" if staged
	Why       string    `json:"why"`   // in words
	// Placement is where the bytes were when they had been registered, Failure which
	// kernel function refused that; null without --trace.
	Placement *placement.Placement `json:"placement"`
	Failure   *trace.Failure       `json:"failure"`
}

// station is one side of a connection: a buffer, its NIC, and an endpoint.
type station struct {
	side
	timeout time.Duration
	src     *source // nil for host memory
	peer    bool    // its device pointers may be registered
	nic     *memory.NIC
	buf     *memory.Buffer
	ep      *engine.Endpoint
}

// pathMoved is of a buffer that is registered and not where it was asked for.
const pathMoved = "moved"

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
	choice, err := pickNIC(f.nic, s.Memory)
	if err != nil {
		return nil, err
	}
	s.NIC, s.NICReason, s.Policy = choice.Name, choice.Why, f.policy.String()
	if err := f.gid.granted(choice.Name, f.port); err != nil {
		return nil, missing(err)
	}
	// Twice the buffer: `bench` has one that is staged beside host memory.
	if s.nic, err = memory.OpenNIC(choice.Name, memory.NICOptions{MaxPinned: 2*s.Memory.Size + pinnedFor}); err != nil {
		return nil, missing(err)
	}
	if err := s.register(ctx, memory.Policy(f.policy), f.trace); err != nil {
		return nil, err
	}
	s.describe()
	opt.AllowPlaintext, opt.ConnectTimeout, opt.Depth, opt.RecvDepth = f.plaintext, f.timeout, maxAtOnce, maxAtOnce+2
	opt.Port, opt.GID = f.port, f.gid.wish
	// A peer that is not ready yet is waited for, 10.24 ms at a time: what is
	// too long --timeout says.
	opt.Connect = ibvfd.ConnectAttr{RNRRetry: 7, MinRNRTimer: 20}
	s.ep, err = engine.NewEndpoint(s.nic, opt)
	return s, err
}

// register makes the station's buffer, watched by a tracer where that is wanted, which
// goes before anything is moved.
func (s *station) register(ctx context.Context, p memory.Policy, traced bool) (err error) {
	seen, err := newWitness(traced && s.src != nil && p != memory.StagedOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seen.close()) }()
	if s.buf, err = s.buffer(p); err != nil {
		_ = seen.refusal(ctx, err) // err says what was seen
		return err
	}
	switch path := s.buf.Path(); {
	case seen == nil:
	case path.Direct != memory.Staged:
		ctx, cancel := context.WithTimeout(ctx, testimony)
		defer cancel()
		where, err := s.buf.Prove(ctx, seen.prover)
		if err != nil {
			return err
		}
		s.Placement = &where
	case path.Reason != nil:
		s.Failure = seen.refusal(ctx, path.Reason)
	}
	return nil
}

// buffer makes a Buffer of the station's memory.
func (s *station) buffer(p memory.Policy) (*memory.Buffer, error) {
	if s.src == nil {
		return s.nic.AllocHost(s.Memory.Size)
	}
	return s.nic.Register(s.src.alloc, memory.BufferOptions{Policy: p, PeerDirect: s.peer})
}

func (s *station) describe() {
	p := s.buf.Path()
	s.Route = string(p.Route)
	switch {
	case s.src == nil:
		s.Path, s.Why = hostSpec, "host memory, which every NIC reaches"
	case p.Direct != memory.Staged:
		s.Path, s.Why = kindDirect, "registered by "+s.Route
		switch {
		case s.Placement != nil && s.Memory.vram() && away(s.Placement.Memory):
			s.Path = pathMoved
			s.Why += ", but its bytes are not in the GPU's memory: " + s.Placement.String()
		case s.Placement != nil:
			s.Why += "; " + s.Placement.String()
		case s.Memory.vram():
			s.Why += "; where its driver has left the bytes was not looked at (--trace does)"
		}
	case p.Reason != nil:
		s.Path, s.Why = "staged", "the registration was refused: "+p.Reason.Error()
	default:
		s.Path, s.Why = "staged", "asked for by --policy"
	}
}

// away reports that none of a GPU's bytes are in its memory.
func away(m placement.Memory) bool {
	return m == placement.SystemMemory || m == placement.Bounced
}

func (s *station) close() error {
	var errs []error
	if s.ep != nil {
		errs = append(errs, s.ep.Close())
	}
	if s.buf != nil {
		errs = append(errs, s.buf.Close())
	}
	if s.nic != nil {
		errs = append(errs, s.nic.Close())
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
		Remedy: "give --tls-cert, --tls-key and --tls-ca, or --plaintext on a network where nobody else is", Err: engine.ErrUnsafe,
	}
}
