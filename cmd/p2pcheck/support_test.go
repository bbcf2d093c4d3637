// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

const support = "docs/reference/support.md"

// docs/reference/support.md has the table of RDMA drivers as the program has it. `make reference` writes it.
func TestSupport(t *testing.T) {
	var b strings.Builder
	b.WriteString("| driver of the PCI function | RDMA driver | 6.1 | 6.12 | 7.2, 7.3 |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(drivers.RdmaDrivers)) {
		d := drivers.RdmaDrivers[name]
		fmt.Fprintf(&b, "| `%s` | `%s` |", name, d.Module)
		for _, v := range []machine.Version{machine.V6_1, machine.V6_12, machine.V7_2} {
			fmt.Fprintf(&b, " %v |", d.KindOn(machine.Kernel{Release: v.String() + ".0", Version: v}))
		}
		b.WriteString("\n")
	}
	referencetest.Block(t, support, "RDMA drivers", b.String(), *update)
	page, err := os.ReadFile(filepath.Join(referencetest.Root(t), support))
	if err != nil {
		t.Fatal(err)
	}
	for class := drivers.Class(0); !strings.Contains(class.String(), "("); class++ {
		if !strings.Contains(string(page), "`"+class.String()+"`") {
			t.Errorf("%s does not name the exporters of class %v", support, class)
		}
	}
	if !strings.Contains(string(page), "| "+machine.Newest.String()+" |") {
		t.Errorf("%s does not have Linux %v, the newest that the tables have", support, machine.Newest)
	}
}
