// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
)

// Names of the program and of the form of its JSON documents.
const (
	Program = "dmabuf-reg"
	Schema  = "dmabuf-reg/v1"
)

// App is one run of the command.
type App struct {
	Stdout, Stderr io.Writer
	Progress       *cli.Progress
	Version        string
	Revision       string // the commit, or "unknown"
	JSON           bool   // --json
	Lines          bool   // --json is one object a line
	Wide           bool   // --wide

	output  io.Closer // that stdout is, if it is a file of ours
	reached bool      // a subcommand began: what fails now is no usage error
	printed bool      // the result was printed early
	told    sync.Mutex
	status  int
}

// Result is what a subcommand found. It is marshalled for --json.
type Result interface {
	Text(w io.Writer) error
}

// Run carries out one command line and returns the exit status.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	out := &cli.Remembered{Writer: a.Stdout} // of help and the version, which Cobra prints
	if slices.Contains(args, "--json") {
		out.Writer = io.Discard
	}
	root.SetOut(out)
	root.SetErr(a.Stderr)
	cli.Strict(root) // once it knows where to write
	cmd, err := root.ExecuteContextC(ctx)
	if a.reached {
		return a.status
	}
	name := ""
	if cmd != root {
		name = cmd.Name()
	}
	switch asked, _ := root.Flags().GetBool("version"); {
	case err != nil: // Cobra's own refusals, before any of our code ran
		a.JSON = a.JSON || slices.Contains(args, "--json")
		return a.finish(name, nil, &cli.UsageError{Err: err})
	case a.JSON && !asked: // the document has the version
		return a.finish(name, nil, &cli.UsageError{Err: errors.New("--json is for what a subcommand finds: help and completion have none")})
	case a.JSON:
		return a.finish(name, nil, nil)
	case out.Err != nil:
		return a.finish(name, nil, out.Err)
	}
	return cli.ExitOK
}

// finish prints what was found and what went wrong.
func (a *App) finish(command string, found Result, err error) int {
	a.Progress.Clear()
	status := cli.Status(err)
	if a.printed {
		cli.PrintErrors(a.Stderr, Program, err)
		return status
	}
	if a.JSON {
		d := cli.Document{
			Schema: Schema, Command: command, Version: a.Version,
			OK: err == nil, Status: status, Errors: cli.Explain(err), OneLine: a.Lines,
		}
		if found != nil {
			d.Result = found
		}
		if werr := d.Write(a.Stdout); werr != nil { // stderr has what the document would have
			if err == nil {
				err, status = werr, cli.ExitFailed
			}
			cli.PrintErrors(a.Stderr, Program, err)
		}
		return status
	}
	if found != nil {
		if werr := found.Text(a.screen()); werr != nil && err == nil {
			err, status = werr, cli.ExitFailed
		}
	}
	if err != nil {
		cli.PrintErrors(a.Stderr, Program, err)
	}
	var usage *cli.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.Stderr, "See `%s %s--help`.\n", Program, spaced(command))
	}
	return status
}

// screen is where the text of a result goes. With --wide nothing in it is folded.
func (a *App) screen() io.Writer {
	if a.Wide {
		return human.Wide{Writer: a.Stdout}
	}
	return a.Stdout
}

// Early prints a result that another program may wait for while the command goes on.
// Later failures are printed to stderr and are in the exit status.
func (a *App) Early(command string, found Result) error {
	if status := a.finish(command, found, nil); status != cli.ExitOK {
		return errors.New("the result could not be printed")
	}
	a.printed = true
	return nil
}

// PrintTo makes a file of ours the place of what is printed. The file is closed at the end.
func (a *App) PrintTo(f io.WriteCloser) { a.Stdout, a.output = f, f }

// Tell says on stderr what happens while the command runs.
func (a *App) Tell(format string, args ...any) {
	if a.Progress != nil {
		a.Progress.Clear()
	}
	a.told.Lock()
	defer a.told.Unlock()
	fmt.Fprintf(a.Stderr, Program+": "+format+"\n", args...)
}

func spaced(s string) string {
	if s != "" {
		s += " "
	}
	return s
}

// Ended is err, and that ctx has ended where err does not say so.
func Ended(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && !errors.Is(err, over) && !errors.Is(err, context.Cause(ctx)) {
		return errors.Join(err, over)
	}
	return err
}

// Action makes a subcommand's RunE of a function that finds something.
func (a *App) Action(f func(ctx context.Context) (Result, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		a.reached = true
		ctx := cmd.Context()
		found, err := f(ctx)
		if errors.Is(err, context.Canceled) && !errors.Is(err, cli.ErrInterrupted) {
			err = errors.Join(context.Cause(ctx), err)
		}
		a.status = a.finish(cmd.Name(), found, err)
		if a.output != nil {
			if err := a.output.Close(); err != nil && a.status == cli.ExitOK {
				cli.PrintErrors(a.Stderr, Program, err)
				a.status = cli.ExitFailed
			}
		}
		if a.status != cli.ExitOK {
			return fmt.Errorf("exit status %d", a.status)
		}
		return nil
	}
}
