// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Every command that registers refuses, before it tries, a buffer for which the free
// part of BAR 1 has no room: a dma-buf takes all of its bytes there, in pages of 64
// KiB, once for all registrations. The figures are of NVML's double.
//
//testbed:kernel 6.12
func TestVMBAR1(t *testing.T) {
	testenv.VM(t)
	const page = 64 << 10
	const total = 256 << 20
	for _, c := range []struct {
		name   string
		free   int64
		pci    string // of the GPU that NVML lists
		args   []string
		status int
	}{
		{"one page", page, "d1", []string{"register", "--gpu", "cuda:0", "--size", "4KiB"}, 0},
		{"less than a page", page - 1, "d1", []string{"register", "--gpu", "cuda:0", "--size", "4KiB"}, 1},
		{"many registrations of one dma-buf", page, "d1", []string{"register", "--gpu", "cuda:0", "--size", "4KiB", "--count", "100"}, 0},
		{"a part of a dma-buf", 512 << 10, "d1", []string{"register", "--gpu", "cuda:0", "--size", "1MiB", "--length", "4KiB"}, 1},
		{"forced", 0, "d1", []string{"register", "--gpu", "cuda:0", "--force"}, 0},
		{"another GPU", 0, "77", []string{"register", "--gpu", "cuda:0"}, 0},
		{"another vendor's", 0, "d1", []string{"register", "--gpu", "rocm:0"}, 0},
		{"verify", 512 << 10, "d1", []string{"verify", "--gpu", "cuda:0", "--size", "1MiB", "--case", "whole buffer"}, 1},
		{"verify, room", 1 << 20, "d1", []string{"verify", "--gpu", "cuda:0", "--size", "1MiB", "--case", "whole buffer"}, 0},
		{"verify, virtual memory", 1 << 20, "d1", []string{"verify", "--gpu", "cuda:0/vmm", "--size", "1MiB", "--case", "whole buffer"}, 1},
		{"serve", 512 << 10, "d1", []string{"serve", "--gpu", "cuda:0", "--size", "1MiB", "--listen", "127.0.0.1:0", "--plaintext"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := command(t, append(c.args, "--json")...).withDoubles(t,
				"GPURDMA_NVML_PCI=0000:"+c.pci+":00.0", fmt.Sprintf("GPURDMA_NVML_BAR1=%d:%d", total, total-c.free))
			if status := r.do(t); status != c.status {
				t.Fatalf("status %d, want %d: %s%s", status, c.status, &r.out, &r.err)
			}
			if c.status == 0 {
				return
			}
			d := parse[struct{}](t, r.out.Bytes())
			if len(d.Errors) != 1 || d.Errors[0].Cause == "" || d.Errors[0].Device != "Double 1 at 0000:d1:00.0" || d.Errors[0].Remedy == "" {
				t.Errorf("%+v", d.Errors)
			}
		})
	}
}
