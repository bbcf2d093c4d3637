// SPDX-License-Identifier: Apache-2.0

package terminal_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// A colour of the program passes, and a name that would clear the screen is written as it is.
func ExampleWriter() {
	const mark = "q7x2" // a random text, so that no name has it
	colors := terminal.Colors{On: true, Mark: mark}
	var b strings.Builder
	fmt.Fprintln(terminal.Writer{Writer: &b, Mark: mark}, colors.Paint("31", "REFUSED"), "mlx5\x1b[2J")
	fmt.Printf("%q\n", b.String())
	// Output: "\x1b[31mREFUSED\x1b[0m mlx5\\x1b[2J\n"
}
