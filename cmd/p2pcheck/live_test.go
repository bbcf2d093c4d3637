// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc/cuda"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// The answer of a driver of which nothing is known counts, and a no counts
// whatever is known of the driver.
func TestAsked(t *testing.T) {
	answers := map[string]ibvfd.Answer{"yes": ibvfd.Yes, "no": ibvfd.No, "silent": ibvfd.Unknown}
	var nics []drivers.NIC
	for _, name := range []string{"yes", "no", "silent", "broken"} {
		nics = append(nics, drivers.NIC{Name: name})
	}
	nics = append(nics, drivers.NIC{Name: "yes", Importer: drivers.Importer{Kind: drivers.Pinned}}, drivers.NIC{Name: "no", Importer: drivers.Importer{Kind: drivers.Dynamic}})
	asked(nics, func(name string) (ibvfd.Support, error) {
		answer, ok := answers[name]
		if !ok {
			return ibvfd.Support{DMABufKernel: ibvfd.Yes}, errors.New("broken")
		}
		return ibvfd.Support{DMABufKernel: answer}, nil
	})
	for i, want := range []drivers.Importer{{Imports: true}, {Kind: drivers.NoImporter}, {}, {}, {Kind: drivers.Pinned}, {Kind: drivers.NoImporter}} {
		if nics[i].Importer != want {
			t.Errorf("%s: %+v", nics[i].Name, nics[i].Importer)
		}
	}
}

// With --config alone p2pcheck still looks at this machine.
func TestHere(t *testing.T) {
	for s, want := range map[machine.Source]bool{{}: true, {Config: "/boot/config"}: true, {Root: "/"}: false, {Sys: "/sys"}: false, {Release: "7.2"}: false} {
		if here(s) != want {
			t.Errorf("%+v", s)
		}
	}
}

// withheld keeps the answers of NVIDIA's libraries about an export, for GPUs of NVIDIA's driver only.
func TestWithheld(t *testing.T) {
	at := func(bus uint8) *pciaddr.Addr { return &pciaddr.Addr{Bus: bus} }
	for _, c := range []struct {
		on    bool
		err   error
		ok    bool
		words string // in the reason
		rdma  placement.Answer
		prop  bool // proprietary modules
		given bool
	}{
		{on: true, ok: true, rdma: placement.Yes, words: "confidential"},
		{words: "no dma-bufs: a reason"},
		{rdma: placement.Yes, words: "no dma-bufs: a reason"},
		{rdma: placement.No, words: "no GPUDirect RDMA"},
		{ok: true, rdma: placement.Yes, given: true},
		{ok: true},                     // a driver that does not know the other attribute
		{ok: true, rdma: placement.No}, // a vGPU, perhaps: the table of products decides
		{ok: true, rdma: placement.Yes, on: true, err: check.ErrNotAsked}, // the mode is not known
		{rdma: placement.Yes, prop: true},                                 // nvidia-peermem may serve it
		{rdma: placement.No, prop: true, words: "no GPUDirect RDMA"},
	} {
		live := check.Live{
			Confidential: func() (bool, error) { return c.on, c.err },
			DMABuf: func() (map[pciaddr.Addr]check.Export, error) {
				return map[pciaddr.Addr]check.Export{*at(1): {OK: c.ok, RDMA: c.rdma, Why: "a reason"}}, nil
			},
		}
		gpus := []drivers.GPU{
			{Exporter: drivers.Exporter{Driver: "nvidia", PCI: at(1), Proprietary: c.prop}},
			{Exporter: drivers.Exporter{Driver: "amdgpu", PCI: at(1)}},
			{Exporter: drivers.Exporter{Driver: "nvidia", PCI: at(2)}}, // CUDA does not list it
		}
		withheld(gpus, live)
		e := gpus[0].Exporter
		if said := e.Withheld; !strings.Contains(said, c.words) || (said == "") != (c.words == "") || e.Given != c.given {
			t.Errorf("%+v: %q, given %v", c, said, e.Given)
		}
		if x := gpus[1].Exporter; x.Withheld != "" || x.Given {
			t.Errorf("%+v: a GPU of amdgpu: %+v", c, x)
		}
		if x := gpus[2].Exporter; x.Given || (x.Withheld != "") != (c.words == "confidential") {
			t.Errorf("%+v: a GPU that CUDA does not list: %+v", c, x)
		}
	}
	withheld([]drivers.GPU{{Exporter: drivers.Exporter{Driver: "amdgpu", PCI: at(1)}}}, check.Live{}) // there is no function to call
}

// What CUDA says decides the library's link of a GPU of which no document says anything.
func TestLibraryLinkByCUDA(t *testing.T) {
	testenv.Double(t, "GPURDMA_LIBCUDA", "doubles/cuda/libcuda.so.1")
	tree := testenv.HGX()
	var name string
	for file := range tree.Files {
		if strings.HasPrefix(file, "proc/driver/nvidia/gpus/") && path.Base(file) == "information" && (name == "" || file < name) {
			name = file
		}
	}
	tree.Files[name] = "Model: \t\t NVIDIA TITAN RTX\n"
	gpu := path.Base(path.Dir(name))
	t.Setenv("DOUBLE_DEVICES", "1")
	t.Setenv("DOUBLE_PCI", gpu)
	m := machine.Open(tree.Write(t))
	gpus, err := drivers.GPUs(m)
	if err != nil {
		t.Fatal(err)
	}
	titan := gpus[slices.IndexFunc(gpus, func(g drivers.GPU) bool { return g.Name == gpu })]
	for _, c := range []struct {
		dmabuf, rdma string
		want         chain.State
	}{{"1", "1", chain.Holds}, {"0", "1", chain.Breaks}, {"0", "0", chain.Breaks}, {"1", "0", chain.Unknown}} {
		t.Setenv("DOUBLE_CUDA_DMABUF", c.dmabuf)
		t.Setenv("DOUBLE_CUDA_RDMA", c.rdma)
		one := []drivers.GPU{titan}
		withheld(one, check.Live{DMABuf: dmabufs, Confidential: func() (bool, error) { return false, nil }})
		if a := p2p.Judge(m, one[0], drivers.NIC{}).Verdict.Link(chain.Library); a.State != c.want {
			t.Errorf("attributes %s and %s: %v: %s, want %v", c.dmabuf, c.rdma, a.State, a.Text(), c.want)
		}
	}
}

// A library that is missing was not asked; a library that fails was.
func TestNotAsked(t *testing.T) {
	for _, c := range []struct {
		err  error
		none bool
	}{{nvml.ErrNoDriver, true}, {nvml.ErrNotBuilt, true}, {cuda.ErrNotBuilt, true}, {fs.ErrNotExist, true}, {cuda.NoDevice, false}, {cuda.SystemDriverMismatch, false}, {errors.New("other"), false}} {
		if err := notAsked(c.err); errors.Is(err, check.ErrNotAsked) != c.none || !errors.Is(err, c.err) {
			t.Error(err)
		}
	}
	if notAsked(nil) != nil {
		t.Error("an error of nothing")
	}
}
