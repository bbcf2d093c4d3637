// SPDX-License-Identifier: Apache-2.0

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
