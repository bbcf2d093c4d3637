// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"strings"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/buffer"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/witness"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/probe"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
	"github.com/gpurdma/gpurdma/placement"
)

// members are the NICs of a worker, and their memory.
type members struct {
	list   []worker.Member
	memory []func() error
}

// openAll opens the NICs. One that does not open takes no part, and says why; an error is that of the first,
// if none opens.
func (f *params) openAll(ctx context.Context, names []string) (m *members, err error) {
	m = &members{}
	seen, err := witness.New(f.Traced() && f.GPU != station.Host)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	var first error
	for i, name := range names {
		one := worker.Member{NIC: control.NIC{Name: name, Memory: f.GPU}}
		p, d, why := f.open(ctx, m, i, name)
		if why != nil {
			if errors.Is(why, context.Canceled) {
				return m, why
			}
			if first == nil {
				first = why
			}
			one.Fault = &control.Fault{Cause: probe.CauseOf(why), Step: "open the NIC and its memory", Text: control.Text(strings.ReplaceAll(why.Error(), "\n", "; "))}
			m.list = append(m.list, one)
			continue
		}
		one.Probe, one.Port, one.Size = p, p.Port(), p.Buffer().Size()
		m.list = append(m.list, one)
		at := &m.list[len(m.list)-1].NIC
		if d.Spec != "" {
			at.Memory = d.Spec
		}
		where := placement.Placement{}
		proved := false
		if seen != nil && p.Buffer().Path().Route != "" {
			if where, err = seen.Buffer(ctx, p.Buffer()); err != nil {
				return m, err
			}
			proved = true
		}
		at.Path, at.Why = describe(f.GPU == station.Host, d.VRAM(), p.Buffer().Path(), where, proved)
	}
	for _, n := range m.list {
		if n.Probe != nil {
			return m, nil
		}
	}
	return m, nics.Missing(first)
}

// open opens a NIC with its memory, and listens.
func (f *params) open(ctx context.Context, m *members, i int, name string) (*probe.NIC, buffer.Description, error) {
	var d buffer.Description
	cfg, err := f.Config()
	if err != nil {
		return nil, d, err
	}
	cfg.PKey, cfg.MTU, cfg.TrafficClass, cfg.ServiceLevel = f.pkey, f.mtu, f.class, f.lane
	if err := f.Granted(name); err != nil {
		return nil, d, err
	}
	listen, err := f.dataListen(i)
	if err != nil {
		return nil, d, err
	}
	p, err := probe.Open(ctx, probe.Options{
		Open: gpurdma.Open, Name: name, Listen: listen, Conn: cfg,
		Alloc: func(ctx context.Context, fab *gpurdma.Fabric) (*gpurdma.Buffer, error) {
			b, made, closeMemory, err := f.OnFabric(ctx, fab)
			d, m.memory = made, append(m.memory, closeMemory)
			return b, err
		},
	})
	return p, d, err
}

// Close ends all connections, and frees the memory.
func (m *members) Close() error {
	var errs []error
	for _, n := range m.list {
		if n.Probe != nil {
			errs = append(errs, n.Probe.Close())
		}
	}
	for _, end := range m.memory {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// describe says how a NIC reaches its memory. Where the bytes of a GPU are is unknown unless it was looked at.
func describe(host, vram bool, p gpurdma.Path, where placement.Placement, proved bool) (path, why string) {
	switch {
	case host:
		return "host", "host memory, which every NIC reaches"
	case p.Staged && p.Reason != nil:
		return "staged", control.Text("the registration was refused: " + strings.ReplaceAll(p.Reason.Error(), "\n", "; "))
	case p.Staged:
		return "staged", "asked for by --policy"
	}
	why = "registered by " + string(p.Route)
	switch {
	case proved && vram && where.Direct() == placement.No:
		return "moved", control.Text(why + ", but its bytes are not in the GPU's memory: " + where.String())
	case proved && vram && where.Direct() != placement.Yes:
		return "unknown", control.Text(why + "; " + where.String())
	case proved:
		return "direct", control.Text(why + "; " + where.String())
	case vram:
		return "unknown", control.Text(why + "; where its driver has left the bytes is not known (--trace shows it)")
	}
	return "direct", why
}
