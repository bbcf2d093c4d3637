// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc/cuda"
	"github.com/gpurdma/gpurdma/gpualloc/nvml"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// A driver of which nothing is known is taken at its word, and one that says no
// whatever is known of it.
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

// withheld keeps the reason for which NVIDIA's libraries refuse an export, for GPUs of NVIDIA's driver
// only.
func TestWithheld(t *testing.T) {
	at := func(bus uint8) *machine.Addr { return &machine.Addr{Bus: bus} }
	for _, c := range []struct {
		on    bool
		err   error
		ok    bool
		words string
	}{{true, nil, true, "confidential"}, {false, nil, false, "no dma-bufs: a reason"}, {false, nil, true, ""}, {true, check.ErrNotAsked, true, ""}} {
		live := check.Live{
			Confidential: func() (bool, error) { return c.on, c.err },
			DMABuf: func() (map[machine.Addr]check.Export, error) {
				return map[machine.Addr]check.Export{*at(1): {OK: c.ok, Why: "a reason"}}, nil
			},
		}
		gpus := []drivers.GPU{{Exporter: drivers.Exporter{Driver: "nvidia", PCI: at(1)}}, {Exporter: drivers.Exporter{Driver: "amdgpu", PCI: at(1)}}}
		withheld(gpus, live)
		if said := gpus[0].Exporter.Withheld; !strings.Contains(said, c.words) || (said == "") != (c.words == "") || gpus[1].Exporter.Withheld != "" {
			t.Errorf("%+v: %q", c, said)
		}
	}
	withheld([]drivers.GPU{{Exporter: drivers.Exporter{Driver: "amdgpu", PCI: at(1)}}}, check.Live{}) // there is no function to call
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
