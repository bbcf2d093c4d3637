// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Open reads a snapshot, or a dump of rdma_topo. The source is the machine that it describes, and is
// valid until the caller calls release. The files are in memory. If r is neither, the error is
// snapshot.Err.
func Open(r io.Reader) (source machine.Source, release func(), err error) {
	tree, err := archive(r)
	if err != nil {
		return machine.Source{}, nil, err
	}
	dir, release := files.Mount(tree)
	return machine.Source{Root: dir}, release, nil
}
