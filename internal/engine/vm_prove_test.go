// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace"
)

// A tracer reports a Buffer's memory as its driver places it: VRAM that stays is proven to be
// behind the GPU's BAR; memory that registration has moved is registered and not proven.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMBufferProve(t *testing.T) {
	testenv.EachGPU(t, func(t *testing.T, places []testenv.GPUPlace) {
		tr := tracing(t) // before anything is registered
		for _, p := range places {
			t.Run(p.Name, func(t *testing.T) {
				noGrowth(t, testNIC)
				direct, where := memory.Registered, placement.SystemMemory
				if p.Where == "vram" {
					direct, where = memory.Proven, placement.PeerToPeer
				}
				// GPUDirect depends on the memory that was asked for: it stays true after a move.
				got := proven(t, tr, ofGPU(p), direct, where, p.Name != "system")
				if bar := p.GPU.PCI + " BAR 2"; (direct == memory.Proven) != strings.Contains(got.String(), "peer-to-peer: "+bar) ||
					direct == memory.Proven && (!got.GPU() || got.Direct() != placement.Yes) {
					t.Errorf("%v; VRAM is behind %s", got, bar)
				}
			})
		}
		t.Run("staged", func(t *testing.T) {
			noGrowth(t, testNIC)
			b := exported("staged", places[0].Spec, memory.StagedOnly).make(t, openTestNIC(t), 64<<10)
			if _, err := b.Prove(limited(t), tr); !errors.Is(err, memory.ErrStaged) || b.Path().Direct != memory.Staged || b.GPUDirect() ||
				!reflect.DeepEqual(b.Path().Proof, placement.Placement{}) {
				t.Errorf("%v, %v, GPUDirect %v", err, b.Path(), b.GPUDirect())
			}
		})
	})
	tr := tracing(t)
	// Memory without a device is registered, and there is nothing to prove.
	for _, spec := range []string{"drm:vgem", "udmabuf"} {
		t.Run(spec, func(t *testing.T) {
			noGrowth(t, testNIC)
			proven(t, tr, exported(spec, spec, memory.DirectOnly), memory.Registered, placement.SystemMemory, false)
		})
	}
}

func openTestNIC(t *testing.T) *memory.NIC { return hostOnly(testNIC).open(t, memory.NICOptions{}) }

// tracing returns a tracer that watches this process from now on.
func tracing(t *testing.T) *trace.Tracer {
	t.Helper()
	tr := must(trace.Open(trace.Config{Self: true, RDMAOnly: true, NoInventory: true}))(t)
	closing(t, tr)
	return tr
}

// proven makes two traced Buffers, so that the tracer could confuse them, and returns the
// placement.
func proven(t *testing.T, tr *trace.Tracer, k kind, direct memory.Direct, where placement.Memory, gpu bool) placement.Placement {
	t.Helper()
	n := openTestNIC(t)
	var got placement.Placement
	for range 2 {
		b := k.make(t, n, 64<<10)
		if p := b.Path(); p.Direct != memory.Registered || p.Proof.Memory != placement.Unknown || b.GPUDirect() != gpu {
			t.Errorf("before anybody was asked: %v, GPUDirect %v", p, b.GPUDirect())
		}
		var err error
		if got, err = b.Prove(limited(t), tr); err != nil {
			t.Fatal(err)
		}
		if p := b.Path(); got.Memory != where || p.Direct != direct || !reflect.DeepEqual(p.Proof, got) || b.GPUDirect() != gpu {
			t.Errorf("proven: %v; path %v; GPUDirect %v, want %v in %v, %v", got, p, b.GPUDirect(), direct, where, gpu)
		}
	}
	return got
}
