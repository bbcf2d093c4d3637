// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurdma/gpurdma/testbed/gotest"
	"github.com/gpurdma/gpurdma/testbed/vm"
)

// testGrace is what a test binary gets, beyond its own -test.timeout, to
// print its stacks and end.
const testGrace = time.Minute

// runExec is for `go test -exec`: it runs one test binary in the guest, in
// the current directory, and brings back the files it writes for go test.
func runExec(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("testbed exec", flag.ContinueOnError)
	var b bootFlags
	b.register(fs, time.Hour)
	dir := fs.String("dir", "", "the binary's working `directory`; the current one by default")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	if fs.NArg() == 0 {
		return 0, errors.New("no test binary: this is for go test -exec 'testbed exec [flags]'")
	}
	bin, err := filepath.Abs(fs.Arg(0))
	if err != nil {
		return 0, err
	}
	b.exposeds = append(b.exposeds, filepath.Dir(bin))
	if d := gotest.Timeout(fs.Args()[1:]); d > 0 {
		b.timeout = d + testGrace
	}
	wd, err := filepath.Abs(*dir) // of "", the current directory
	if err != nil {
		return 0, err
	}
	b.exposeds = append(b.exposeds, wd)
	o, err := b.options(ctx)
	if err != nil {
		return 0, err
	}
	v, err := vm.Start(ctx, o)
	if err != nil {
		return outcome(0, err)
	}
	testArgs, outs := gotest.Redirect(fs.Args()[1:], wd, guestResults)
	if err := prepareOutputs(v.Results, outs); err != nil {
		v.Kill()
		return 0, err
	}
	status, err := v.Run(ctx, vm.Cmd{
		Args: append([]string{bin}, testArgs...), Dir: wd, Env: append(environ(o), "PWD="+wd),
		Stdout: os.Stdout, Stderr: os.Stderr, Timeout: b.timeout,
	})
	if err == nil {
		err = collectOutputs(v.Results, outs)
	}
	return finish(v, status, err)
}

// prepareOutputs makes the directories that the binary expects to exist.
func prepareOutputs(results string, outs []gotest.Output) error {
	for _, o := range outs {
		if o.Dir {
			if err := os.MkdirAll(filepath.Join(results, o.Guest), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectOutputs copies what the binary wrote to where go test looks for it.
func collectOutputs(results string, outs []gotest.Output) error {
	for _, o := range outs {
		from := filepath.Join(results, o.Guest)
		var err error
		if o.Dir {
			err = copyDir(from, o.Host)
		} else {
			err = copyFile(from, o.Host)
		}
		// A binary that failed early has written nothing.
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("bringing back %s: %w", o.Host, err)
		}
	}
	return nil
}

// copyDir copies the files of one directory over those of another.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
