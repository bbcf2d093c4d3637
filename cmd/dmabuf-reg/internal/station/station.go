// SPDX-License-Identifier: Apache-2.0

package station

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/link"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
)

// Station is one side of a connection: a buffer, its NICs, and an endpoint, or a set of them.
type Station struct {
	Side
	Bufs []*memory.Buffer                 // one for each NIC
	Buf  *memory.Buffer                   // the first, for the CPU
	Tell func(format string, args ...any) // says on stderr what happens to rails

	timeout time.Duration
	src     *buffer.Source // nil for host memory
	peer    bool           // its device pointers may be registered
	nics    []*memory.NIC
	ep      *engine.Endpoint       // of one NIC
	set     *rails.Set             // of several
	opt     engine.EndpointOptions // of their connections
	ln      *rails.Listener
}

// Bounds of a station.
const (
	MaxClients = 32  // that are connected at a time; one of them has the buffer
	MaxAtOnce  = 256 // messages that may be received, and operations under way
	pinnedFor  = 32 << 20
)

// Open makes a station. The caller closes it.
func (f *Flags) Open(ctx context.Context, opt engine.EndpointOptions) (_ *Station, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if opt.TLS, err = f.tls(); err != nil {
		return nil, err
	}
	if err := nics.NeedLibrary(); err != nil {
		return nil, err
	}
	s := &Station{timeout: f.Timeout, peer: f.peerDirect}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if f.GPU == Host {
		s.Memory = hostMemory(int64(f.Size))
	} else {
		if s.src, err = buffer.Allocate(ctx, f.GPU, int64(f.Size), f.force); err != nil {
			return nil, orHost(err)
		}
		s.Memory = s.src.Description
	}
	if err := s.openNICs(f); err != nil {
		return nil, err
	}
	if err := s.start(ctx, f, opt); err != nil {
		return nil, err
	}
	return s, nil
}

// OnNICs makes a station of host memory over NICs that are open. The caller closes it, and the NICs
// with it.
func (f *Flags) OnNICs(ctx context.Context, nics []*memory.NIC, opt engine.EndpointOptions) (*Station, error) {
	s := &Station{timeout: f.Timeout, nics: nics}
	s.Memory = hostMemory(int64(f.Size))
	var names []string
	for _, n := range nics {
		names = append(names, n.Name())
		s.Registrations = append(s.Registrations, registration{NIC: n.Name(), NICReason: "it was open"})
	}
	s.NIC = strings.Join(names, ",")
	if err := s.start(ctx, f, opt); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// orHost names the host's memory in the remedy of a spec that this machine does not have.
func orHost(err error) error {
	var e *failure.Error
	const also = "; or use " + Host + ", for memory of the host"
	missing := errors.Is(err, gpualloc.ErrUnknownSpec) || errors.Is(err, gpualloc.ErrUnavailable)
	if missing && errors.As(err, &e) && !strings.HasSuffix(e.Remedy, also) { // a library's error is kept, and told again
		e.Remedy += also
	}
	return err
}

// hostMemory describes memory of the host.
func hostMemory(size int64) buffer.Description {
	return buffer.Description{Spec: Host, Kind: gpualloc.KindSystem.String(), Requested: size, Size: size}
}

// start registers the memory with the NICs, and makes the endpoints.
func (s *Station) start(ctx context.Context, f *Flags, opt engine.EndpointOptions) (err error) {
	opt.AllowPlaintext, opt.ConnectTimeout, opt.Depth = f.Plaintext, f.Timeout, MaxAtOnce
	opt.Port, opt.GID, opt.Hello = f.port, f.gid.Wish, greeting(len(s.nics))
	opt.Admit = s.admit
	if len(s.nics) > 1 {
		// If NewSet fails, it closes the NICs: there must be no buffer yet.
		if s.set, err = rails.NewSet(s.nics, MaxClients*rails.Most); err != nil {
			return err
		}
		opt.MaxPeers, opt.MaxConns, opt.MailDepth, opt.MailSize = 0, opt.MaxPeers, link.MailDepth, link.MailSize
		opt.PeerTimeout = min(f.Timeout, mostSilence)
		s.opt = opt
	}
	if err := s.register(ctx, memory.Policy(f.Policy), f.trace); err != nil {
		return err
	}
	s.describe()
	if s.set != nil {
		return nil
	}
	opt.RecvDepth = MaxAtOnce + 2
	// A peer that is not ready yet is waited for, 10.24 ms at a time, until
	// --timeout.
	opt.Connect = ibvfd.ConnectAttr{RNRRetry: 7, MinRNRTimer: 20}
	s.ep, err = engine.NewEndpoint(s.nics[0], opt)
	return err
}

// openNICs opens the NICs of --nic.
func (s *Station) openNICs(f *Flags) error {
	names, err := nics.Names(f.NIC)
	if err != nil {
		return err
	}
	var choices []nics.Choice
	if f.Several() {
		choices, err = nics.PickSeveral(names, s.Memory.PCI)
	} else {
		var one nics.Choice
		one, err = nics.Pick(f.NIC, s.Memory.PCI)
		choices = []nics.Choice{one}
	}
	if err != nil {
		return err
	}
	// Twice the buffer: `bench` has one that is staged beside host memory. Over several NICs
	// connections have memory for messages.
	pinned := 2*s.Memory.Size + pinnedFor
	if f.Several() {
		pinned += 4 * MaxClients * link.MailDepth * link.MailSize
	}
	names = nil
	for _, c := range choices {
		if err := f.gid.Granted(c.Name, f.port); err != nil {
			return nics.Missing(err)
		}
		n, err := memory.OpenNIC(c.Name, memory.NICOptions{MaxPinned: pinned})
		if err != nil {
			return nics.Missing(err)
		}
		s.nics, names = append(s.nics, n), append(names, c.Name)
		s.Registrations = append(s.Registrations, registration{NIC: c.Name, NICReason: c.Why})
	}
	s.NIC, s.NICReason, s.Policy = strings.Join(names, ","), choices[0].Why, f.Policy.String()
	return nil
}

// Close ends all connections, and releases the memory and the NICs.
func (s *Station) Close() error {
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
		errs = append(errs, memory.ReleaseAll(s.Bufs))
	} else if s.Buf != nil {
		errs = append(errs, s.Buf.Close())
	}
	for _, n := range s.nics {
		errs = append(errs, n.Close())
	}
	if s.src != nil {
		errs = append(errs, s.src.Close())
	}
	return errors.Join(errs...)
}

// Unprotected says in the command's words how an exchange is protected.
func Unprotected(addr string, err error) error {
	if !errors.Is(err, engine.ErrUnsafe) {
		return err
	}
	return &failure.Error{
		Op: "protect the exchange", Device: addr, Detail: "the address is not a loopback address, and there is no TLS",
		Remedy: "give --tls-cert, --tls-key and --tls-ca, or --plaintext on a network that only trusted machines use", Err: engine.ErrUnsafe,
	}
}

// Within bounds a step, and says what it was when the time is over.
func (s *Station) Within(ctx context.Context, what string, step func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := step(limited)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return &failure.Error{
			Op: what, Device: s.NIC, Detail: fmt.Sprintf("not done within %v", s.timeout),
			Remedy: "see whether the other side still runs, or give a longer --timeout", Err: err,
		}
	}
	return err
}
