// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// All predictions for 16 GPUs and 16 NICs, two and two below a switch, on a
// machine of 4,000 PCI functions.
func BenchmarkCheck(b *testing.B) {
	var tree strings.Builder
	functions := 0
	add := func(format string, args ...any) {
		fmt.Fprintf(&tree, format+"\n", args...)
		functions++
	}
	for i := range 8 {
		bus := fmt.Sprintf("%02x", i*0x20)
		up := fmt.Sprintf("pci0000:%s/0000:%s:01.0/0000:%02x:00.0", bus, bus, i*0x20+1)
		add("pci0000:%s/0000:%s:01.0 class=0x060400 type=4", bus, bus)
		add("%s class=0x060400 type=5", up)
		for port := range 4 {
			down := fmt.Sprintf("%s/0000:%02x:%02x.0", up, i*0x20+2, port)
			add("%s class=0x060400 type=6 acs=0x1d", down)
			what := "class=0x120000 driver:amdgpu"
			if port%2 == 1 {
				what = fmt.Sprintf("class=0x020000 driver:mlx5_core rdma:mlx5_%d", i*2+port/2)
			}
			add("%s/0000:%02x:00.0 %s", down, i*0x20+3+port, what)
		}
	}
	for functions < 4000 {
		add("pci0001:00/%04x:%02x:%02x.%d class=0x088000", 1+functions>>13, functions>>8&0xff, functions>>3&0x1f, functions&7)
	}
	root := machineTree(tree.String(), "").Write(b)
	b.ReportAllocs()
	for b.Loop() {
		a := &app{stdout: io.Discard, stderr: io.Discard}
		if status := a.run([]string{"--root", root}); status != cli.ExitFailed {
			b.Fatal(status)
		}
	}
}
