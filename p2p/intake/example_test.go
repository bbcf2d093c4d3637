// SPDX-License-Identifier: Apache-2.0

package intake_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/intake"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// A file that describes no machine is refused, and the error says what was expected.
func ExampleArchive() {
	_, err := intake.Archive(strings.NewReader("[]"))
	fmt.Println(errors.Is(err, snapshot.Err), err)
	// Output: true not an archive that `p2pcheck snapshot` wrote, and a dump of rdma_topo that names no device: one for each PCI function was expected
}
