// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bufio"
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// Archive reads a snapshot, or what rdma_topo dumped. A file that is neither has an error that is [snapshot.Err].
func Archive(r io.Reader) (*files.Tree, error) {
	buffered := bufio.NewReader(r)
	if isDump(buffered) {
		return fromDump(buffered)
	}
	return snapshot.Read(buffered)
}
