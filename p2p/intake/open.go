// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Open reads a snapshot, or what rdma_topo dumped, as [Archive] does. The source is the machine that it describes,
// until release is called. No other program sees its files.
func Open(r io.Reader) (source machine.Source, release func(), err error) {
	tree, err := Archive(r)
	if err != nil {
		return machine.Source{}, nil, err
	}
	dir, release := files.Mount(tree)
	return machine.Source{Root: dir}, release, nil
}
