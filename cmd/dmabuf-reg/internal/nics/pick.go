// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Choice is a NIC and why it is the one.
type Choice struct{ Name, Why string }

// Pick resolves --nic for memory of a PCI device, pci being "" where there is none.
func Pick(name string, pci string) (Choice, error) {
	nics, err := Candidates(name)
	if err != nil {
		return Choice{}, err
	}
	choices, err := PickAmong(nics, name, pci)
	if err != nil {
		return Choice{}, err
	}
	if len(choices) > 1 {
		return Choice{}, &cli.UsageError{Err: fmt.Errorf("--nic %s means %d devices here, one is needed", name, len(choices))}
	}
	return choices[0], nil
}

// Candidates lists the NICs, and asks them what they support if the choice
// depends on it. Else the registration will tell.
func Candidates(name string) ([]Device, error) {
	if name == "auto" {
		return Find(ibdev.ListWithoutGIDs)
	}
	return List(ibdev.ListWithoutGIDs)
}

// PickAmong resolves --nic among nics: a name, auto or all.
func PickAmong(nics []Device, name string, pci string) ([]Choice, error) {
	var names []string
	for _, n := range nics {
		if n.Name == name {
			return []Choice{{name, "asked for by name"}}, nil
		}
		names = append(names, n.Name)
	}
	if strings.Contains(name, ",") {
		return nil, &cli.UsageError{Err: fmt.Errorf("--nic %s: this command takes one NIC; serve, connect and bench take several", name)}
	}
	if len(nics) == 0 {
		return nil, &cli.Unavailable{Err: &failure.Error{
			Op: "open", Device: "NIC " + name, Detail: "no RDMA device", Err: unix.ENODEV,
			Remedy: "load the NIC's driver and ib_uverbs, or make a software one: rdma link add rxe0 type rxe netdev eth0",
		}}
	}
	switch name {
	case "all":
		var all []Choice
		for _, n := range names {
			all = append(all, Choice{n, "all were asked for"})
		}
		return all, nil
	case "auto":
		return nearest(nics, pci)
	}
	return nil, &cli.Unavailable{Err: &failure.Error{
		Op: "open", Device: "NIC " + name, Detail: "no such RDMA device", Err: unix.ENODEV,
		Remedy: "there are: " + strings.Join(names, ", "),
	}}
}

// nearest picks among the NICs that can register dma-bufs; if none is known
// to, among all, so that the registration says what is missing.
func nearest(nics []Device, pci string) ([]Choice, error) {
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
	if addr, err := pciaddr.Parse(pci); err == nil {
		near = &addr
	}
	n, err := ibdev.Nearest("", near, able)
	if err != nil {
		return nil, &cli.Unavailable{Err: err}
	}
	return []Choice{{n.Name, n.Why + note}}, nil
}

// Names returns the words of --nic.
func Names(list string) ([]string, error) {
	names := strings.Split(list, ",")
	if len(names) == 1 {
		return names, nil
	}
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, &cli.UsageError{Err: fmt.Errorf("--nic %s: "+format, append([]any{list}, args...)...)}
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		names[i] = name
		switch {
		case name == "":
			return refuse("an element is empty: write names, and one comma between two of them")
		case name == "auto", name == "all":
			return refuse("%s does not go with names: name each NIC", name)
		case slices.Contains(names[:i], name):
			return refuse("%s is named twice: each NIC has one rail", name)
		}
	}
	if len(names) > rails.Most {
		return refuse("%d NICs, where a connection has %d at most", len(names), rails.Most)
	}
	return names, nil
}

// PickSeveral resolves the NICs of --nic.
func PickSeveral(names []string, pci string) (list []Choice, err error) {
	nics, err := Candidates("")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		one, err := PickAmong(nics, name, pci)
		if err != nil {
			return nil, err
		}
		list = append(list, one[0])
	}
	return list, nil
}
