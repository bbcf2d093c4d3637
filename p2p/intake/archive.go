// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bufio"
	"io"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// archive reads a snapshot, or what rdma_topo dumped.
func archive(r io.Reader) (*files.Tree, error) {
	buffered := bufio.NewReader(r)
	if isDump(buffered) {
		return fromDump(buffered)
	}
	return snapshot.Read(buffered)
}
