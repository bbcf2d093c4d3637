// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// report prints rows, in words or as a JSON document, and what broke the comparison off.
// It returns the exit status.
func report[T any](asJSON bool, schema string, rows []T, words func(io.Writer, []T), err error) int {
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(struct {
			Schema string `json:"schema"`
			Rows   []T    `json:"rows"`
		}{schema, rows})
	} else {
		words(os.Stdout, rows)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}
