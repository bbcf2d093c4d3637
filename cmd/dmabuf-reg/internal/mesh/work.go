// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/station"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/worker"
)

// Working is what a worker prints when it takes orders.
type Working struct {
	Listen string `json:"listen"` // the TCP address, with the port that was chosen
	// Protection is how the orders are protected: "TLS" (mutual), "loopback" (in the clear, on this
	// machine only), "none".
	Protection string        `json:"protection"`
	NICs       []control.NIC `json:"worker_nics"` // the NICs that the worker offers
}

func (f *params) doWork(ctx context.Context, a *app.App) (_ app.Result, err error) {
	if err := station.CheckAddr(f.listen); err != nil {
		return nil, usage("--listen %w", err)
	}
	if f.dataPort < 0 || f.dataPort > 65535-control.MaxNICs {
		return nil, usage("--data-port must be 1 to %d, not %d", 65535-control.MaxNICs, f.dataPort)
	}
	allow, err := networks(f.allow)
	if err != nil {
		return nil, err
	}
	t, err := f.TLS()
	if err != nil {
		return nil, err
	}
	if err := nics.NeedLibrary(); err != nil {
		return nil, err
	}
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{KeepAliveConfig: control.KeepAlive}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, &failure.Error{Op: "listen", Device: f.listen, Remedy: "choose another --listen HOST:PORT; port 0 chooses one that is free", Err: err}
	}
	defer l.Close()
	protect := control.Protection{TLS: t, AllowPlaintext: f.Plaintext}
	if t == nil {
		if err := protect.MayBePlain(l.Addr()); err != nil {
			return nil, station.Unprotected(f.listen, err)
		}
	}
	m, err := f.openAll(ctx, names)
	defer func() { err = errors.Join(err, m.Close()) }()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	w := &worker.Worker{
		Host: human.Short(host, 60), Release: human.Short(a.Version, 60), Members: m.list, Protect: protect, Allow: allow, Once: f.once,
		Tell: func(format string, args ...any) { a.Tell("%s", line(format, args...)) },
	}
	r := &Working{Listen: l.Addr().String(), Protection: f.Protection(l.Addr())}
	for _, n := range m.list {
		r.NICs = append(r.NICs, n.NIC)
	}
	if err := a.Early("mesh", r); err != nil {
		return nil, err
	}
	return nil, w.Serve(ctx, l)
}

// networks reads --allow.
func networks(words []string) (list []netip.Prefix, err error) {
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil {
			ip, e := netip.ParseAddr(w)
			if e != nil {
				return nil, usage("--allow %q is no network: write 10.0.0.0/8 or 10.0.0.1", w)
			}
			p = netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// names are the NICs of --nic.
func (f *params) names() ([]string, error) {
	if f.NIC != "all" {
		names, err := nics.Names(f.NIC)
		if err != nil {
			return nil, err
		}
		choices, err := nics.PickSeveral(names, "")
		names = nil
		for _, c := range choices {
			names = append(names, c.Name)
		}
		return names, err
	}
	all, err := nics.List(ibdev.ListWithoutGIDs)
	if err != nil {
		return nil, err
	}
	var names, down []string
	for _, n := range all {
		active := false
		for _, p := range n.Ports {
			active = active || p.State == ibdev.PortActive
		}
		if active {
			names = append(names, n.Name)
		} else {
			down = append(down, n.Name)
		}
	}
	switch {
	case len(names) > control.MaxNICs:
		return nil, usage("--nic all is %d NICs, of at most %d: name them", len(names), control.MaxNICs)
	case len(names) == 0 && len(down) > 0:
		return nil, &cli.Unavailable{Err: &failure.Error{
			Op: "find a NIC", Device: human.First(down, 8), Detail: "no port is active", Err: errors.ErrUnsupported,
			Remedy: "see why the links are down (ibstat, ip link), or name a NIC with --nic",
		}}
	case len(names) == 0:
		_, err := nics.Pick("auto", "") // says that there is none
		return nil, err
	}
	return names, nil
}

// dataListen is the address on which NIC number i takes connections.
func (f *params) dataListen(i int) (string, error) {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return "", err
	}
	port := 0
	if f.dataPort > 0 {
		port = f.dataPort + i
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

var protections = map[string]string{
	"TLS": "mutual TLS", "loopback": "in the clear, on this machine only", "none": "IN THE CLEAR: every program that reaches it can make this node measure",
}

// Text implements app.Result.
func (r *Working) Text(w io.Writer) error {
	human.Line(w, fmt.Sprintf("%s (%s)", r.Listen, protections[r.Protection]), "listen:  ", "         ")
	for _, n := range r.NICs {
		if n.Fault != nil {
			fmt.Fprintf(w, "nic:     %s takes no part: %s: %s\n", n.Name, n.Fault.Step, n.Fault.Text)
			continue
		}
		if _, err := fmt.Fprintf(w, "nic:     %s, TCP port %d; memory %s, %s: %s\n", n.Name, n.Port, n.Memory, n.Path, n.Why); err != nil {
			return err
		}
	}
	return nil
}
