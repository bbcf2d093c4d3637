// SPDX-License-Identifier: Apache-2.0

package intake_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/intake"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// A file that describes no machine is refused, and the error says what was expected.
func ExampleOpen_refused() {
	_, _, err := intake.Open(strings.NewReader("[]"))
	fmt.Println(errors.Is(err, snapshot.Err), err)
	// Output: true not an archive that `p2pcheck snapshot` wrote, and a dump of rdma_topo that names no device: one for each PCI function was expected
}

// A snapshot is opened, and its machine is looked at as any other.
func ExampleOpen() {
	archive := taken()
	source, release, err := intake.Open(archive)
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	m := source.Open()
	gpus, err := drivers.GPUs(m)
	fmt.Println(m.Kernel.Release, len(gpus), err)
	// Output: 6.12.9 0 <nil>
}

// taken is a snapshot of a machine without devices.
func taken() *bytes.Buffer {
	root, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for name, text := range map[string]string{"proc/sys/kernel/osrelease": "6.12.9\n", "sys/bus/pci/devices/.keep": "", "sys/class/drm/.keep": "", "sys/devices/.keep": ""} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	all, err := snapshot.Take(machine.Source{Root: root})
	if err != nil {
		log.Fatal(err)
	}
	var archive bytes.Buffer
	if err := all.Write(&archive, "1.0"); err != nil {
		log.Fatal(err)
	}
	return &archive
}
