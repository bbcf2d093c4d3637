// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Table prints rows and, below, a note for each that needs one. It leaves out the columns that spare
// names where the table is too wide ([human.Table]).
func Table(w io.Writer, rows [][]string, notes [][2]string, empty string, spare ...string) error {
	if len(rows) == 1 {
		return human.Line(w, strings.TrimLeft(empty, " "), empty[:len(empty)-len(strings.TrimLeft(empty, " "))], "    ")
	}
	if err := human.Table(w, rows, spare...); err != nil {
		return err
	}
	for _, n := range notes {
		if err := human.Line(w, n[0]+": "+n[1], "  ", "    "); err != nil {
			return err
		}
	}
	return nil
}

// Approximately is a number of bytes in a table.
func Approximately(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n == 0:
		return ""
	}
	return fmt.Sprintf("%d B", n)
}
