// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Open reads a snapshot, or what rdma_topo dumped. The source is the machine that it describes, until release is
// called. No other program sees its files. A file that is neither has an error that is [snapshot.Err].
func Open(r io.Reader) (source machine.Source, release func(), err error) {
	tree, err := archive(r)
	if err != nil {
		return machine.Source{}, nil, err
	}
	dir, release := files.Mount(tree)
	return machine.Source{Root: dir}, release, nil
}
