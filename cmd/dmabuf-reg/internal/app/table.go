// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Table prints rows and, below, a note for each that needs one.
func Table(w io.Writer, rows [][]string, notes [][2]string, empty string) error {
	if len(rows) == 1 {
		_, err := fmt.Fprintln(w, empty)
		return err
	}
	if err := human.Table(w, rows); err != nil {
		return err
	}
	for _, n := range notes {
		if _, err := fmt.Fprintf(w, "  %s: %s\n", n[0], n[1]); err != nil {
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
