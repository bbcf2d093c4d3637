// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/p2pcheck/internal/metrics"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// writer is what writes the format that --format names; nil for text and JSON.
func (a *app) writer() formats.Format {
	if a.format == "prometheus" {
		return a.prometheus
	}
	return formats.All[a.format]
}

// prometheus writes metrics.
func (a *app) prometheus(b *strings.Builder, run formats.Input) int {
	families, err := metrics.Gather(a.looked(run))
	if err = errors.Join(err, metrics.Write(b, families)); err != nil {
		cli.PrintErrors(a.stderr, program, err)
		return cli.ExitUsage
	}
	return run.Status
}

// looked is a look at the machine that ends now.
func (a *app) looked(run formats.Input) metrics.Look {
	now := time.Now()
	look := metrics.Look{Input: run, Ended: now, Version: version, Revision: revision}
	if !a.begun.IsZero() { // a mistake on the command line comes before the look
		look.Took = now.Sub(a.begun)
	}
	return look
}

// formatted prints the result in the format of another program. If the write fails, the status is the one
// that means unknown to that program.
func (a *app) formatted(write formats.Format, found output, status int, err error) int {
	var r *result.Run
	if whole, ok := found.(checkOutput); ok {
		r = (*result.Run)(&whole)
	} else {
		cli.PrintErrors(a.stderr, program, err)
	}
	var b strings.Builder
	status = write(&b, formats.Input{Found: r, Status: status, Errors: problems(err)})
	if err := a.emit([]byte(a.unmasked(b.String()))); err != nil {
		cli.PrintErrors(a.stderr, program, err)
		return write(&b, formats.Input{Status: cli.ExitUsage, Errors: problems(err)})
	}
	return status
}

// toFile reports that the output goes to a file: "-" is the standard output.
func (a *app) toFile() bool { return a.output != "" && a.output != standard }

// emit writes to the standard output, or to the file that --output names.
func (a *app) emit(data []byte) error {
	if !a.toFile() {
		_, err := a.stdout.Write(data)
		return err
	}
	return writeWhole("the result", "--output", a.output, data, othersRead)
}

// othersRead is the mode of a file that another user's program collects, if the umask lets it.
const othersRead = 0o644

// writeWhole replaces a file whole or not at all, and writes to a device.
func writeWhole(what, flag, name string, data []byte, mode fs.FileMode) error {
	f, err := cli.Create(name)
	if err == nil {
		_, err = f.Write(data)
		if err == nil {
			err = f.Keep(mode)
		}
		err = errors.Join(err, f.Drop())
	}
	if err != nil {
		return cli.Unwritten(what, flag, name, err)
	}
	return nil
}

// problems are the texts of a joined error, one for each error in it.
func problems(err error) (out []formats.Problem) {
	for _, e := range cli.Explain(err) {
		out = append(out, formats.Problem{Kind: e.Kind, Message: e.Message})
	}
	return out
}
