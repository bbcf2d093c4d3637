// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/fleet"
)

// Of three nodes one has another kernel.
func ExampleMerge() {
	const run = `{"schema": "p2pcheck/v2", "command": "check", "exit_status": 0,
		"result": {"machine": {"kernel": "6.12.1"}, "gpus": [], "nics": [], "pairs": [], "checks": []}}`
	var m fleet.Merge
	for node, text := range []string{run, run, strings.Replace(run, "6.12.1", "6.18.3", 1)} {
		if err := m.AddFrom(fmt.Sprint("node", node), strings.NewReader(text)); err != nil {
			log.Fatal(err)
		}
	}
	report := m.Report()
	for _, n := range report.Nodes {
		for _, d := range n.Differs {
			fmt.Printf("%s differs from %s: %s\n", n.Node, report.Like, d.Difference())
		}
	}
	// Output: node2 differs from node0: machine kernel: 6.18.3, was 6.12.1
}
