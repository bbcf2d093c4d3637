// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// The archive of a machine has what a check reads.
func Example() {
	root, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for name, text := range map[string]string{
		"sys/class/infiniband/storage0/node_type": "1: CA\n",
		"proc/cmdline": "root=UUID=7f3c1a5e password=secret iommu=pt\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	taken, err := snapshot.Take(machine.Source{Root: root})
	if err != nil {
		log.Fatal(err)
	}
	var archive bytes.Buffer
	if err := taken.Write(&archive, "1.0"); err != nil {
		log.Fatal(err)
	}
	tree, err := snapshot.Read(&archive)
	if err != nil {
		log.Fatal(err)
	}
	for name, file := range tree.All() {
		if len(file.Data) > 0 {
			fmt.Printf("%s: %s", name, file.Data)
		}
	}
	// Output:
	// proc/cmdline: iommu=pt
	// sys/class/infiniband/rdma-a0/node_type: 1: CA
}
