// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table writes rows in aligned columns, the first row being the header. An
// empty cell becomes a dash, so that a row can be read from any column.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			cells[i] = strings.NewReplacer("\t", " ", "\n", " ").Replace(cell)
		}
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// Rate writes bytes per second for people.
func Rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return ""
	case perSecond >= 1e9:
		return fmt.Sprintf("%.2f GB/s", perSecond/1e9)
	default:
		return fmt.Sprintf("%.1f MB/s", perSecond/1e6)
	}
}

// Duration writes a time with three significant digits at most.
func Duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Nanosecond).String()
	}
}
