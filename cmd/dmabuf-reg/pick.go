// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// openAllocator opens what --gpu names.
func openAllocator(spec string) (gpualloc.Allocator, error) {
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	switch {
	case errors.Is(err, fs.ErrPermission): // it is there
		return nil, err
	case errors.Is(err, gpualloc.ErrAmbiguousSpec):
		return nil, &cli.UsageError{Err: err}
	case errors.Is(err, gpualloc.ErrUnknownSpec), errors.Is(err, gpualloc.ErrUnavailable):
		return nil, &cli.Unavailable{Err: err}
	}
	return a, err
}

// choice is a NIC and why it is the one.
type choice struct{ Name, Why string }

// pickNIC resolves --nic for memory m.
func pickNIC(name string, m allocated) (choice, error) {
	nics, err := candidates(name)
	if err != nil {
		return choice{}, err
	}
	choices, err := pickNICs(nics, name, m)
	if err != nil {
		return choice{}, err
	}
	if len(choices) > 1 {
		return choice{}, &cli.UsageError{Err: fmt.Errorf("--nic %s means %d devices here, one is needed", name, len(choices))}
	}
	return choices[0], nil
}

// candidates lists the NICs, and asks them what they support if the choice
// depends on it. Else the registration will tell.
func candidates(name string) ([]nic, error) {
	if name == "auto" {
		return findNICs(ibdev.ListWithoutGIDs)
	}
	return listNICs(ibdev.ListWithoutGIDs)
}

// pickNICs resolves --nic among nics: a name, auto or all.
func pickNICs(nics []nic, name string, m allocated) ([]choice, error) {
	var names []string
	for _, n := range nics {
		if n.Name == name {
			return []choice{{name, "asked for by name"}}, nil
		}
		names = append(names, n.Name)
	}
	if strings.Contains(name, ",") {
		return nil, &cli.UsageError{Err: fmt.Errorf("--nic %s: this command takes one NIC; serve, connect and bench take several", name)}
	}
	if len(nics) == 0 {
		return nil, &cli.Unavailable{Err: &dmabuf.Error{
			Op: "open", Device: "NIC " + name, Detail: "no RDMA device", Err: unix.ENODEV,
			Remedy: "load the NIC's driver and ib_uverbs, or make a software one: rdma link add rxe0 type rxe netdev eth0",
		}}
	}
	switch name {
	case "all":
		var all []choice
		for _, n := range names {
			all = append(all, choice{n, "all were asked for"})
		}
		return all, nil
	case "auto":
		return nearest(nics, m)
	}
	return nil, &cli.Unavailable{Err: &dmabuf.Error{
		Op: "open", Device: "NIC " + name, Detail: "no such RDMA device", Err: unix.ENODEV,
		Remedy: "there are: " + strings.Join(names, ", "),
	}}
}

// nearest picks among the NICs that can register dma-bufs; if none is known
// to, among all, so that the registration says what is missing.
func nearest(nics []nic, m allocated) ([]choice, error) {
	var able, all []ibdev.Info
	for _, n := range nics {
		all = append(all, n.Info)
		if n.Support != nil && n.Support.DMABufKernel == ibvfd.Yes {
			able = append(able, n.Info)
		}
	}
	note := ""
	if len(able) == 0 {
		able = all
		note = " (none is known to register dma-bufs)"
	} else if len(able) < len(all) {
		note = fmt.Sprintf(" (%d of %d register dma-bufs)", len(able), len(all))
	}
	var near *pciaddr.Addr
	if addr, err := pciaddr.Parse(m.PCI); err == nil {
		near = &addr
	}
	n, err := ibdev.Nearest("", near, able)
	if err != nil {
		return nil, &cli.Unavailable{Err: err}
	}
	return []choice{{n.Name, n.Why + note}}, nil
}

// openNIC opens a device that pickNIC named.
func openNIC(name string) (*ibvfd.Context, error) {
	c, err := ibvfd.Open(name)
	return c, missing(err)
}

// needLibrary fails early if no NIC could be opened whatever its name.
func needLibrary() error {
	c, err := ibvfd.Open("")
	if err == nil {
		return c.Close()
	}
	if err = missing(err); errors.As(err, new(*cli.Unavailable)) {
		return err
	}
	return nil
}

// missing marks what is no failure of the device.
func missing(err error) error {
	if errors.Is(err, ibvfd.ErrNotBuilt) || errors.Is(err, ibvfd.ErrNoLibrary) || errors.Is(err, ibvfd.ErrBrokenLibrary) {
		return &cli.Unavailable{Err: err}
	}
	return err
}
