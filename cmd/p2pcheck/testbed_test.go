// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Snapshots of the test bed's machines, taken there by `p2pcheck snapshot` with
// the software GPUs as amdgpu, xe, i915 and amdgpu, say today what they said when
// a person read it. The VM tests hold the same machines against the kernel.
func TestSnapshotsOfTheTestbed(t *testing.T) {
	testenv.Exhaustive(t)
	files, err := filepath.Glob("testdata/testbed/*.tar.gz")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d snapshots: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
		t.Run(name, func(t *testing.T) {
			text := ""
			for _, args := range [][]string{{"--snapshot", file}, {"topo", "--snapshot", file}} {
				var out, errs bytes.Buffer
				a := &app{stdout: &out, stderr: &errs}
				status := a.run(args)
				if status == cli.ExitUsage {
					t.Errorf("%q: %s", args, &errs)
				}
				text += fmt.Sprintf("$ p2pcheck %s\n%s%sstatus %d\n\n", strings.Join(args, " "), &out, &errs, status)
			}
			golden(t, "testbed/"+name+".txt", text)
		})
	}
}
