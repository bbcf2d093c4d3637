// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/nics"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/human"
)

// Result is what `devices` found.
type Result struct {
	Allocators []gpualloc.Description `json:"allocators"` // every allocator that this build knows, usable or not
	NICs       []nics.Device          `json:"nics"`       // the RDMA devices
	Libibverbs string                 `json:"libibverbs"` // the path and version of the library that is used, or why there is none
	NVIDIA     []nvml.GPU             `json:"nvidia"`     // the GPUs that NVML lists
	NVML       string                 `json:"nvml"`       // why NVML lists no GPUs; "" if it does
}

// Command is `devices`.
func Command(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "List the memory allocators and RDMA NICs of this machine, with what each supports",
		Long: `List every memory allocator that this program knows and every RDMA device,
with what works here and, where something does not, why and what to change.

An allocator's SPEC is what --gpu takes. For a NIC, "kernel" says whether its
driver registers dma-bufs, "library" whether its libibverbs provider does;
where only the kernel does, this program calls it directly.`,
		Args: cli.NoArgs,
		RunE: a.Action(func(context.Context) (app.Result, error) { return Find() }),
	}
}

// Find lists what this machine has.
func Find() (*Result, error) {
	d := &Result{Allocators: gpualloc.Discover(gpualloc.Env{}), NICs: []nics.Device{}, Libibverbs: ibvfd.Version(), NVIDIA: []nvml.GPU{}}
	if gpus, err := nvml.GPUs(); err != nil {
		d.NVML = err.Error()
	} else {
		d.NVIDIA = append(d.NVIDIA, gpus...)
	}
	nics, err := nics.Find(ibdev.List)
	if err != nil {
		return d, err
	}
	d.NICs = nics
	return d, nil
}

// Text implements app.Result.
func (d *Result) Text(w io.Writer) error {
	fmt.Fprintln(w, "Memory that can be exported as a dma-buf:")
	rows := [][]string{{"SPEC", "DRIVER", "EXPORTER", "DEVICE", "PCI", "KIND", "LIMIT", "STATE"}}
	var notes [][2]string
	for _, m := range d.Allocators {
		state, limit := "ready", ""
		if !m.Available {
			state = "not available"
			notes = append(notes, [2]string{m.Spec, withRemedy(m.Why, m.Remedy)})
		}
		if m.MaxSize > 0 {
			limit = bytesize.Format(m.MaxSize)
		}
		pci := ""
		if m.PCI != nil {
			pci = m.PCI.String()
		}
		driver := m.Driver
		if m.Class != "" && m.Class != driver { // as p2pcheck names a software GPU
			driver += " (" + m.Class + ")"
		}
		rows = append(rows, []string{m.Spec, driver, m.Exporter, m.Device, pci, m.Kind.String(), limit, state})
	}
	if err := app.Table(w, rows, notes, "  none known to this build", "EXPORTER,DEVICE,LIMIT"); err != nil {
		return err
	}

	if err := d.nvidiaText(w); err != nil {
		return err
	}

	fmt.Fprintln(w, "\nRDMA devices:")
	rows, notes = [][]string{{"NAME", "DRIVER", "PCI", "NETDEV", "PORT", "STATE", "MTU", "DMA-BUF IN KERNEL", "IN LIBRARY"}}, nil
	for _, n := range d.NICs {
		kernel, library := ibvfd.Unknown, ibvfd.Unknown
		if s := n.Support; s != nil {
			kernel, library = s.DMABufKernel, s.DMABufProvider
			switch {
			case kernel != ibvfd.Yes:
				notes = append(notes, [2]string{n.Name, withRemedy(s.Reason, s.Remedy)})
			case library == ibvfd.No:
				notes = append(notes, [2]string{n.Name, s.ProviderReason + "; this program then calls the kernel itself"})
			case library == ibvfd.Unknown:
				notes = append(notes, [2]string{n.Name, s.ProviderReason})
			}
		} else {
			notes = append(notes, [2]string{n.Name, n.Problem})
		}
		pci := ""
		if n.PCI != nil {
			pci = n.PCI.String()
		}
		for _, p := range n.Ports {
			rows = append(rows, []string{n.Name, n.Driver, pci, strings.Join(n.NetDevs, ","), fmt.Sprint(p.Num), fmt.Sprint(p.State), fmt.Sprint(p.MTU), kernel.String(), library.String()})
		}
	}
	if err := app.Table(w, rows, notes, "  none: load the NIC's driver and ib_uverbs, or make a software one: rdma link add rxe0 type rxe netdev eth0", "MTU", "NETDEV"); err != nil {
		return err
	}
	return human.Line(w, "libibverbs: "+d.Libibverbs, "\n", "    ")
}

func withRemedy(why, remedy string) string {
	if remedy == "" || strings.Contains(why, remedy) {
		return why
	}
	return why + "; " + remedy
}

// nvidiaText lists what NVML knows: BAR1 is what NICs reach, and bounds how much
// can be registered.
func (d *Result) nvidiaText(w io.Writer) error {
	if len(d.NVIDIA) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nNVIDIA GPUs:")
	rows := [][]string{{"GPU", "PCI", "UUID", "MEMORY", "USED", "BAR1", "USED"}}
	for _, g := range d.NVIDIA {
		cells := []string{g.Name, g.PCI.String(), g.UUID, bytesize.Format(g.Memory.Total), bytesize.Format(g.Memory.Used), "-", "-"}
		if g.BAR1 != nil {
			cells[5], cells[6] = bytesize.Format(g.BAR1.Total), bytesize.Format(g.BAR1.Used)
		}
		rows = append(rows, cells)
	}
	return app.Table(w, rows, nil, "", "UUID")
}
