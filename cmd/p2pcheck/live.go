// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/cuda"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/dcb"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// here reports that p2pcheck looks at this machine itself. --config is allowed.
func here(s machine.Source) bool { return s == machine.Source{Config: s.Config, Process: s.Process} }

// asked asks the drivers whether they import dma-bufs. A driver's no overrules the table of drivers.
func asked(nics []drivers.NIC, imports func(string) (ibvfd.Support, error)) {
	for i := range nics {
		switch s, err := imports(nics[i].Name); {
		case err != nil:
		case s.DMABufKernel == ibvfd.Yes && nics[i].Importer.Kind == drivers.KindUnknown:
			nics[i].Importer.Imports = true
		case s.DMABufKernel == ibvfd.No:
			nics[i].Importer.Kind = drivers.NoImporter
		}
	}
}

// answers are the functions that ask this machine. They register nothing, and ask each library once.
func answers() check.Live {
	gpus := sync.OnceValues(nvml.GPUs)
	return check.Live{
		BAR1:   func() (map[pciaddr.Addr]check.Usage, error) { return perGPU(gpus, bar1) },
		Memory: func() (map[pciaddr.Addr]uint64, error) { return perGPU(gpus, memory) },
		DMABuf: sync.OnceValues(dmabufs), Confidential: sync.OnceValues(confidential), Peers: sync.OnceValues(peers),
		Imports: ibvfd.Probe, Port: port, PFC: pfc, Opens: opens,
	}
}

// withheld notes the answers of NVIDIA's libraries about an export. A no always counts. A yes
// counts only if CUDA says yes to both attributes and NVML says that confidential computing is
// off: the attributes are not known to follow that mode. Proprietary modules export no dma-bufs
// and may serve nvidia-peermem: there, a no to dma-bufs alone denies nothing.
func withheld(gpus []drivers.GPU, live check.Live) {
	for i := range gpus {
		e := &gpus[i].Exporter
		if e.Driver != "nvidia" || e.PCI == nil {
			continue
		}
		confidential, err := live.Confidential()
		if err == nil && confidential {
			e.Withheld = "confidential computing is on, which closes the GPU's memory to NICs"
			continue
		}
		said, _ := live.DMABuf()
		x, ok := said[*e.PCI]
		switch {
		case !ok:
		case !x.OK && x.RDMA == placement.No:
			e.Withheld = "CUDA says that the GPU has no GPUDirect RDMA and exports no dma-bufs: " + x.Why
		case !x.OK && !e.Proprietary:
			e.Withheld = "CUDA says that the GPU exports no dma-bufs: " + x.Why
		case x.OK && x.RDMA == placement.Yes && err == nil:
			e.Given = true
		}
	}
}

// notAsked marks the error of a missing library as ErrNotAsked. The error of a library that fails stays.
func notAsked(err error) error {
	var answer cuda.Result // a library that is there, and lists no GPU
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nvml.ErrNotBuilt), errors.Is(err, cuda.ErrNotBuilt), errors.Is(err, nvml.ErrNoDriver),
		errors.Is(err, fs.ErrNotExist) && !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", check.ErrNotAsked, err)
	}
	return err
}

func dmabufs() (map[pciaddr.Addr]check.Export, error) {
	devices, err := cuda.Devices(gpualloc.Env{})
	out := map[pciaddr.Addr]check.Export{}
	for _, d := range devices {
		x := check.Export{OK: d.DMABuf.OK, Why: strings.Join(d.DMABuf.Why, "; "), Remedy: d.DMABuf.Remedy}
		if yes := d.GPUDirectRDMA; yes != nil && *yes {
			x.RDMA = placement.Yes
		} else if yes != nil {
			x.RDMA = placement.No
		}
		out[d.PCI] = x
	}
	return out, notAsked(err)
}

func confidential() (bool, error) {
	on, err := nvml.Confidential()
	return on, notAsked(err)
}

func peers() ([]check.Peer, error) {
	all, err := nvml.Peers()
	var out []check.Peer
	for _, p := range all {
		out = append(out, check.Peer{A: p.A, B: p.B, OK: p.OK(), Read: p.Read, Write: p.Write})
	}
	return out, notAsked(err)
}

func bar1(g nvml.GPU) (check.Usage, bool) {
	if g.BAR1 == nil || g.BAR1.Total <= 0 || g.BAR1.Used < 0 {
		return check.Usage{}, false
	}
	return check.Usage{Total: uint64(g.BAR1.Total), Used: uint64(g.BAR1.Used)}, true
}

func memory(g nvml.GPU) (uint64, bool) { return uint64(g.Memory.Total), g.Memory.Total > 0 }

// perGPU asks NVML about each GPU, and keeps the values without an error.
func perGPU[T any](gpus func() ([]nvml.GPU, error), of func(nvml.GPU) (T, bool)) (map[pciaddr.Addr]T, error) {
	all, err := gpus()
	out := map[pciaddr.Addr]T{}
	for _, g := range all {
		a, e := pciaddr.Parse(g.PCI.String())
		if said, ok := of(g); ok && e == nil {
			out[a] = said
		}
		err = errors.Join(err, e)
	}
	return out, notAsked(err)
}

func port(nic string, num int) (_ ibdev.PortAttr, err error) {
	c, err := ibvfd.Open(nic)
	if errors.Is(err, ibvfd.ErrNotBuilt) || errors.Is(err, ibvfd.ErrNoLibrary) || errors.Is(err, ibvfd.ErrBrokenLibrary) {
		err = fmt.Errorf("%w: %w", check.ErrNotAsked, err)
	}
	if err != nil {
		return ibdev.PortAttr{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.QueryPort(num)
}

func pfc(netdev string) ([]int, error) {
	p, err := dcb.PFC(netdev)
	return p.List(), err
}

func opens(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
