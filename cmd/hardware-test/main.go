// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// version is set by the build.
var version = "unknown"

func main() {
	version = cli.Version(version)
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program. Its exit status is 0 if no prediction is wrong, also where nothing
// could be compared, 1 if one is or a runtime's tests fail, and 2 if the run itself failed.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("hardware-test", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "", "the `directory` of p2pcheck, convert and the runtimes' tests (that of this program)")
	out := flags.String("out", "", "the `directory` to write into (one named after the time, beside that of the programs)")
	names := flags.String("runtimes", "", "the vendors' libraries to ask: cuda, rocm, levelzero (all)")
	one := flags.String("ask", "", "print what one library answers, and do nothing else")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	fail := func(err error) int {
		fmt.Fprintln(stderr, "hardware-test:", err)
		return 2
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("argument %q: there are only flags", flags.Arg(0)))
	}
	if *one != "" {
		if err := child(*one, stdout); err != nil {
			return fail(err)
		}
		return 0
	}
	asked, err := chosen(*names)
	if err != nil {
		return fail(err)
	}
	if *bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fail(err)
		}
		*bin = filepath.Dir(self)
	}
	if *bin, err = filepath.Abs(*bin); err != nil {
		return fail(err)
	}
	if *out == "" {
		*out = filepath.Join(filepath.Dir(*bin), time.Now().UTC().Format("20060102-150405"))
	}
	h := &hardware{bin: *bin, out: *out, vendors: asked, progress: stderr, scrub: newScrubber()}
	h.ask = h.askChild
	ctx, cancel := context.WithTimeoutCause(context.Background(), totalLimit, late(totalLimit))
	defer cancel()
	r, err := h.run(ctx)
	if err != nil {
		return fail(err)
	}
	if err := r.text(stdout); err != nil {
		return fail(err)
	}
	fmt.Fprintf(stdout, "\nSend this directory: %s\n", h.out)
	fmt.Fprintln(stdout, "It has no serial number, UUID, network address or host name. Read it before you send it.")
	if r.failed() {
		return 1
	}
	return 0
}
