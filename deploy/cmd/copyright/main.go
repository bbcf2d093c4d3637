// SPDX-License-Identifier: Apache-2.0

// Command copyright writes the copyright file of a package, in the machine-readable form of Debian (DEP-5):
// the licences of all Go modules of which packages are linked into its programs, and of Go itself. One
// changes here what such a file says.
//
//	copyright -o FILE [-spdx FILE] ./cmd/p2pcheck...
//
// It runs in the directory of the module whose programs these are, and reads licences where go list says
// that the modules are: in the module cache. It takes GOOS, GOARCH and CGO_ENABLED from the environment, as
// the build does.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "", "file to write")
	spdx := flag.String("spdx", "", "file to write the licences to, as one SPDX expression")
	flag.Parse()
	if err := run(*out, *spdx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "copyright:", err)
		os.Exit(1)
	}
}

func run(out, spdx string, programs []string) error {
	if out == "" || len(programs) == 0 {
		return errors.New("name a file with -o, and the programs' packages as arguments")
	}
	modules, err := linked(programs)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	all, err := write(&text, modules)
	if err != nil {
		return err
	}
	if spdx != "" {
		if err := os.WriteFile(spdx, []byte(all+"\n"), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}
