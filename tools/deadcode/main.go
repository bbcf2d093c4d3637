// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	analyzer := flag.String("analyzer", "", "the program golang.org/x/tools/cmd/deadcode")
	allow := flag.String("allow", "", "the allow-list: lines of a function's name and a reason")
	flag.Parse()
	if *analyzer == "" || *allow == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	n, err := run(*analyzer, *allow, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "deadcode:", err)
		os.Exit(2)
	}
	if n > 0 {
		os.Exit(1)
	}
}

// run prints what is wrong, and returns how many lines that were.
func run(analyzer, allow, dir string) (int, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0, err
	}
	list, err := os.ReadFile(allow)
	if err != nil {
		return 0, err
	}
	allowed, err := parseAllowed(string(list))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", allow, err)
	}
	found, err := analyze(analyzer, dir)
	if err != nil {
		return 0, err
	}
	lines := compare(found, allowed)
	for _, line := range lines {
		fmt.Println(line)
	}
	if len(lines) == 0 {
		fmt.Printf("no dead function in %d packages, but %d that %s has\n", found.packages, len(allowed), filepath.Base(allow))
	}
	return len(lines), nil
}
