// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/agent"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/p2pcheck/internal/metrics"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/result"
)

func (a *app) serve() *cobra.Command {
	var listen, nfd string
	var every time.Duration
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve metrics for Prometheus at /metrics",
		Long: `serve answers requests at /metrics with the output of --format prometheus. It reads
the machine again for a request, at most once in --every. /healthz answers without
reading the machine. With --nfd it also writes the output of --format nfd to a file
once in --every; the labels expire after three times --every, so that they go away
when serve ends. An error that stays, as an unknown check in --skip or a label file
that cannot be written, ends serve at its start with status 2. A device that is
missing may come later: serve goes on, and the metrics report it.
The metrics count what cannot be read, and serve says why on its standard error, once
for each change. SIGTERM ends it with status 0, SIGINT with 130.`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.reached = true
			ctx, cancel := cli.Context()
			defer cancel()
			err := a.listen(ctx, listen, every, nfd)
			// SIGTERM is how a service is stopped, and no failure of it.
			if cli.Signal(ctx) == unix.SIGINT {
				err = cli.ErrInterrupted
			}
			return a.end("serve", nil, err)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9838", "address and port")
	c.Flags().DurationVar(&every, "every", 30*time.Second, "how old an answer may be: 1s or more, 0 to read the machine for each request")
	c.Flags().StringVar(&a.proofs, "proofs", "", proofsHelp)
	c.Flags().StringVar(&nfd, "nfd", "", "file for node-feature-discovery's labels, in its features.d")
	return c
}

// leastEvery keeps serve from reading the machine all the time.
const leastEvery = time.Second

func (a *app) listen(ctx context.Context, address string, every time.Duration, nfd string) error {
	if every < leastEvery && every != 0 {
		return &cli.UsageError{Err: fmt.Errorf("--every %v: it is %v or more, or 0 to read the machine for each request", every, leastEvery)}
	}
	if a.snapshotFile == standard {
		return &cli.UsageError{Err: errors.New("--snapshot -: serve reads the snapshot again and again, and the standard input can be read once: name a file")}
	}
	if nfd != "" && every == 0 {
		return &cli.UsageError{Err: errors.New("--nfd needs an --every above 0")}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	looking := *a // a look that is under way when serve ends goes on for a moment
	looking.told = &told{}
	looks := agent.Share(looking.answer, every)
	begun, err := looks.Answer(ctx)
	if err != nil {
		return l.Close() // it ends before it began
	}
	if begun.Err != nil {
		var usage *cli.UsageError
		if errors.As(begun.Err, &usage) {
			return errors.Join(begun.Err, l.Close())
		}
	}
	if nfd != "" {
		// Labels that cannot be written would go unnoticed later: serve fails now.
		switch err := writeLabels(ctx, looks, every, nfd); {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT): // there may be room later
			cli.PrintErrors(a.stderr, program, err)
		case err != nil:
			return errors.Join(&cli.UsageError{Err: err}, l.Close())
		}
	}
	fmt.Fprintf(a.stderr, "%s: metrics at http://%s/metrics\n", program, l.Addr())
	var labels sync.WaitGroup
	defer labels.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if nfd != "" {
		labels.Go(func() { a.label(ctx, looks, every, nfd) })
	}
	return agent.Serve(ctx, l, looks)
}

// label writes the labels again and again.
func (a *app) label(ctx context.Context, looks *agent.Shared, every time.Duration, file string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		if err := writeLabels(ctx, looks, every, file); err != nil && ctx.Err() == nil {
			cli.PrintErrors(a.stderr, program, err)
		}
	}
}

// writeLabels writes the labels, with the time at which node-feature-discovery drops them.
func writeLabels(ctx context.Context, looks *agent.Shared, every time.Duration, file string) error {
	answer, err := looks.Answer(ctx)
	if err != nil {
		return err
	}
	until := time.Now().Add(3 * every).UTC().Format(time.RFC3339)
	return writeWhole("the labels", "--nfd", file, []byte("# +expiry-time="+until+"\n"+answer.Labels), othersRead)
}

// answer looks at the machine.
func (a *app) answer(ctx context.Context) agent.Answer {
	one := *a // reading a snapshot changes it
	one.wanted, one.begun = ctx, time.Now()
	found, err := one.look(one.check)
	status := cli.Status(err)
	var r *result.Run
	if whole, ok := found.(checkOutput); ok {
		r, status = (*result.Run)(&whole), result.Worse(status, whole.status())
	}
	var labels strings.Builder
	run := formats.Input{Found: r, Status: status, Errors: problems(err)}
	formats.NFD(&labels, run)
	families, odd := metrics.Gather(one.looked(run))
	gathered := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	if odd != nil {
		err = errors.Join(err, odd)
	}
	if one.told != nil && ctx.Err() == nil { // a look whose callers have left ends early, and its errors say little
		one.tell(err)
	}
	return agent.Answer{Metrics: agent.NewPage(gathered), Labels: labels.String(), Err: err}
}

// told is what serve has said of the last look.
type told struct {
	looked bool
	errors string
}

// tell prints the errors of a look, when these are others than those of the look before. With an error that stays
// serve ends at its start, and prints it then.
func (a *app) tell(err error) {
	t := a.told
	text := ""
	if err != nil {
		text = err.Error()
	}
	var usage *cli.UsageError
	ends := !t.looked && errors.As(err, &usage)
	if err != nil && text != t.errors && !ends {
		cli.PrintErrors(a.stderr, program, err)
	}
	t.looked, t.errors = true, text
}
