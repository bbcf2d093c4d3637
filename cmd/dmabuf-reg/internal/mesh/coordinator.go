// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/app"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/internal/mesh/control"
	"github.com/gpurdma/gpurdma/internal/mesh/nodelist"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Result is what the coordinator found.
type Result struct {
	*mesh.Result
	wide bool
}

// ReportSchema names the form of the file that --report writes.
const ReportSchema = "dmabuf-reg/mesh/v1"

// Report is the file of mesh --report. It has names and addresses of nodes.
type Report struct {
	Schema  string  `json:"schema"`  // "dmabuf-reg/mesh/v1"
	Version string  `json:"version"` // of the program
	Result  *Result `json:"result"`  // the result of the coordinator
}

func (f *params) doCoordinate(ctx context.Context, a *app.App, args []string) (app.Result, error) {
	nodes, err := f.list(args, os.Stdin)
	if err != nil {
		return nil, err
	}
	c, err := f.config(nodes)
	if err != nil {
		return nil, err
	}
	var file *cli.OutFile
	if f.report != "" {
		if file, err = cli.Create(f.report); err != nil {
			return nil, cli.Unwritten("the report", "--report", f.report, err)
		}
		defer file.Drop()
	}
	c.Release, c.Tell = a.Version, func(format string, args ...any) { a.Tell("%s", line(format, args...)) }
	c.Progress = func(done, total int) { a.Progress.Draw("pairs", int64(done), int64(total)) }
	r := &Result{Result: mesh.Run(ctx, *c), wide: f.wide}
	terminal.Clean(r.Result)
	verdict := r.verdict(ctx)
	if file != nil {
		verdict = errors.Join(verdict, keep(file, f.report, &Report{ReportSchema, a.Version, r}))
	}
	return r, verdict
}

func keep(file *cli.OutFile, path string, r *Report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(data, '\n')); err != nil {
		return cli.Unwritten("the report", "--report", path, err)
	}
	if err := file.Keep(0o644); err != nil {
		return cli.Unwritten("the report", "--report", path, err)
	}
	return nil
}

// list is the nodes of the command line, of the file, or of Slurm.
func (f *params) list(args []string, stdin io.Reader) ([]nodelist.Node, error) {
	words := args
	switch {
	case len(args) > 0 && f.nodes != "":
		return nil, usage("%q: --nodes %s has the nodes", args[0], f.nodes)
	case len(args) > 0:
	case f.nodes != "":
		in := stdin
		if f.nodes != "-" {
			file, err := os.Open(f.nodes)
			if err != nil {
				return nil, &failure.Error{Op: "read the list of nodes", Device: f.nodes, Remedy: "give --nodes a file that this user may read, or - for stdin", Err: err}
			}
			defer file.Close()
			in = file
		}
		var err error
		if words, err = nodelist.Read(in); err != nil {
			return nil, usage("--nodes %s: %w", f.nodes, err)
		}
	case slurm() != "":
		words = []string{slurm()}
	default:
		return nil, &cli.UsageError{Err: errNoNodes}
	}
	nodes, err := nodelist.Parse(words, DefaultPort)
	switch {
	case err != nil:
		return nil, &cli.UsageError{Err: err}
	case len(nodes) < 2:
		return nil, usage("%s is one node: a mesh has two or more", nodes[0].Addr())
	}
	return nodes, nil
}

func (f *params) config(nodes []nodelist.Node) (*mesh.Config, error) {
	t, err := f.TLS()
	if err != nil {
		return nil, err
	}
	size, err := f.opSize.Int64()
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	volume, err := f.volume.Int64()
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	c := &mesh.Config{
		Nodes: nodes, Protect: control.Protection{TLS: t, AllowPlaintext: f.Plaintext},
		Plan:     control.Plan{Size: size, Depth: f.depth, Volume: volume, Time: f.time, Small: f.small, Timeout: f.Timeout},
		SameRail: f.sameRail, Parallel: f.parallel, GiveUp: f.giveUp, Wait: f.wait, Silence: 2 * f.Timeout, Tolerance: float64(f.slow) / 100,
	}
	if err := c.Plan.Check(); err != nil {
		return nil, usage("--op-size, --depth, --volume, --time, --small and --timeout: %w", err)
	}
	switch {
	case f.slow < 1 || f.slow > 99:
		return nil, usage("--slow must be 1 to 99 percent, not %d", f.slow)
	case f.parallel < 0:
		return nil, usage("--parallel must be 1 or more, not %d", f.parallel)
	case f.giveUp < 0:
		return nil, usage("--give-up must be 0 or more, not %d", f.giveUp)
	case f.wait < 0:
		return nil, usage("--wait must be 0 or more, not %v", f.wait)
	}
	return c, nil
}
