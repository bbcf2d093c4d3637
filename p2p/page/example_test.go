// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/page"
)

// Write the page of a fleet whose nodes have written their runs with p2pcheck --json.
func ExampleFleet() {
	runs := map[string]string{
		"node1": `{"schema":"p2pcheck/v2","command":"check","result":{"machine":{"kernel":"7.2.1"}}}`,
		"node2": `{"schema":"p2pcheck/v2","command":"check","result":{"machine":{"kernel":"7.2.1"}}}`,
	}
	seen := page.NewFleet()
	merge := fleet.Merge{Observe: seen.Observe}
	for _, node := range []string{"node1", "node2"} {
		if err := merge.AddFrom(node, strings.NewReader(runs[node])); err != nil {
			fmt.Println(err)
		}
	}
	var file bytes.Buffer
	err := seen.Page(merge.Report()).Write(&file)
	fmt.Println(strings.Contains(file.String(), "<title>GPUs and NICs of 2 nodes"), err)
	// Output: true <nil>
}
