// SPDX-License-Identifier: Apache-2.0

package formats_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// A plugin of nagios writes one line, and ends with the status that nagios expects.
func ExampleFormat() {
	run := result.Run{
		Pairs:   []result.Pair{{GPU: "0000:03:00.0", NIC: "mlx5_0", Outcome: "refused", Counts: true}},
		Summary: result.Summary{Refused: 1},
	}
	var b strings.Builder
	status := formats.All["nagios"](&b, formats.Input{Found: &run, Status: run.Status()})
	line, _, _ := strings.Cut(b.String(), " |")
	fmt.Println(line, status)
	// Output: P2PCHECK CRITICAL - 0 of 1 pairs direct (1 refused) 2
}
