// SPDX-License-Identifier: Apache-2.0

package main

import "os"

// standard is the name of standard input and output.
const standard = "-"

// openInput opens a file that is read once, from its beginning.
func openInput(name string) (*os.File, error) {
	if name == standard {
		return os.Stdin, nil
	}
	return os.Open(name)
}
