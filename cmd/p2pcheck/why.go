// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// whyCommand is `p2pcheck why GPU NIC`.
func (a *app) whyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "why GPU NIC",
		Short: "Explain link by link why a NIC reaches a GPU's memory, or does not",
		Long: `why prints the chain of one pair: for each link what it asks, whether it holds,
what that rests on (file and value), and for the link that decides what to change.
A pair is direct only if every link from library to fabric is known to hold. The
log only takes away, and a live proof decides in both directions.

GPU and NIC are what --gpu and --nic take: a PCI address, a name, a driver. Where
they name several, each pair is printed.

Exit status: 0 if all these pairs are direct, 1 if one is known not to be, 2 if
nothing could be read, 3 if one is not known.`,
		Args: cli.Args("GPU", "NIC"),
		RunE: func(c *cobra.Command, args []string) error {
			a.gpu, a.nic = args[:1], args[1:]
			return a.action("why", a.why)(c, nil)
		},
	}
	c.Flags().StringVar(&a.proofs, "proofs", "", proofsHelp)
	c.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "the remedy of each link, not only of the one that decides")
	return c
}

// why judges the pairs that the arguments name.
func (a *app) why(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	pairs, missing, err := a.judge(m, gpus, nics)
	if err != nil {
		return nil, err
	}
	p2p.Combine(m, pairs)
	return whyOutput{result.New(m, gpus, nics, pairs).Pairs}, errors.Join(a.nothing(m, gpus, nics), missing)
}

// whyOutput is the output of why.
type whyOutput struct {
	Pairs []result.Pair `json:"pairs"` // the pairs that the command line names
}

func (o whyOutput) text(w io.Writer, a *app) error {
	for i, p := range o.Pairs {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := render.Why(w, a.style(), p); err != nil {
			return err
		}
	}
	return nil
}

func (o whyOutput) status() int { return result.StatusOf(o.Pairs) }
