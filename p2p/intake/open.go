// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Open reads a snapshot, or a dump of rdma_topo, into memory. The source is the machine that r
// describes, and is valid until the caller calls release. If r is neither a snapshot nor a dump, or is
// hostile, damaged or cut off, errors.Is finds snapshot.Err in the error. After an error release is nil.
func Open(r io.Reader) (source machine.Source, release func(), err error) {
	tree, err := archive(r)
	if err != nil {
		return machine.Source{}, nil, err
	}
	dir, release := files.Mount(tree)
	return machine.Source{Root: dir}, release, nil
}
