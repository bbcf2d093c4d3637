// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/gpurdma/gpurdma/testbed/apt"
	"github.com/gpurdma/gpurdma/testbed/downloads"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

const usage = `usage:
  downloads debs -o RECORD -for PART [-lists DIR] FILE.deb...
  downloads source -o RECORD -for PART [-lists DIR] -name NAME -version VERSION FILE
  downloads host -o RECORD -for PART [-debs DIR] PACKAGE...
  downloads fetch -o RECORD -for PART -dir DIR PACKAGE...
  downloads manifest [-build DIR]
  downloads versions [-build DIR]`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "downloads:", err)
		os.Exit(1)
	}
}

// options are those of all commands.
type options struct {
	output, purpose, lists, debs, dir, name, version, build string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var o options
	fs := flag.NewFlagSet("downloads "+args[0], flag.ContinueOnError)
	for name, f := range map[string]struct {
		to   *string
		help string
	}{
		"o": {&o.output, "the `record` to write"}, "for": {&o.purpose, "the `part` of set-up that uses the files"},
		"lists": {&o.lists, "the `directory` of apt's indexes; by default this machine's"}, "debs": {&o.debs, "the `directory` of what was just installed"},
		"dir": {&o.dir, "the `directory` to download into"}, "name": {&o.name, "of the source package"}, "version": {&o.version, "of the source package"},
		"build": {&o.build, "the build `directory`; by default the checkout's"},
	} {
		fs.StringVar(f.to, name, "", f.help)
	}
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "manifest", "versions":
		if fs.NArg() > 0 {
			return errors.New(usage)
		}
		t, err := layout.Find(".")
		if err != nil {
			return err
		}
		if o.build != "" {
			t.Build = o.build
		}
		if args[0] == "manifest" {
			return downloads.WriteManifest(t.Root, t.Build)
		}
		return downloads.Print(os.Stdout, t.Build)
	case "debs", "source", "host", "fetch":
	default:
		return errors.New(usage)
	}
	if o.output == "" || o.purpose == "" || fs.NArg() == 0 {
		return errors.New(usage)
	}
	if o.lists == "" {
		var err error
		if o.lists, err = downloads.Lists(ctx); err != nil {
			return err
		}
	}
	items, err := o.items(ctx, args[0], fs.Args())
	if err != nil {
		return err
	}
	return downloads.WriteRecord(o.output, items)
}

func (o options) items(ctx context.Context, command string, args []string) ([]downloads.Item, error) {
	switch command {
	case "source":
		if len(args) != 1 || o.name == "" || o.version == "" {
			return nil, errors.New(usage)
		}
		i, err := downloads.SourceFile(ctx, o.lists, o.purpose, o.name, o.version, args[0])
		return []downloads.Item{i}, err
	case "host":
		// A list that an older version of this program has written is written anew.
		old, _ := downloads.Read(o.output)
		var debs []string
		if o.debs != "" {
			debs, _ = filepath.Glob(filepath.Join(o.debs, "*.deb"))
		}
		return downloads.Host(ctx, o.lists, o.purpose, old, debs, args)
	case "fetch":
		if o.dir == "" {
			return nil, errors.New(usage)
		}
		debs, err := fetch(ctx, &apt.Apt{}, o.dir, args)
		if err != nil {
			return nil, err
		}
		return downloads.Debs(ctx, o.lists, o.purpose, debs)
	}
	return downloads.Debs(ctx, o.lists, o.purpose, args)
}

// fetch downloads packages. Indexes that are missing or out of date are the usual cause
// of a failure.
func fetch(ctx context.Context, a *apt.Apt, dir string, packages []string) ([]string, error) {
	debs, err := download(ctx, a, dir, packages)
	if err == nil || ctx.Err() != nil {
		return debs, err
	}
	fmt.Fprintln(os.Stderr, "downloads: refreshing apt's package lists:", err)
	if uerr := a.Update(ctx); uerr != nil {
		return nil, fmt.Errorf("%w; %w", err, uerr)
	}
	return download(ctx, a, dir, packages)
}

func download(ctx context.Context, a *apt.Apt, dir string, packages []string) ([]string, error) {
	var debs []string
	for _, name := range packages {
		p, err := a.Show(ctx, name, "")
		if err != nil {
			return nil, err
		}
		deb, err := a.Download(ctx, dir, p)
		if err != nil {
			return nil, err
		}
		debs = append(debs, deb)
	}
	return debs, nil
}
