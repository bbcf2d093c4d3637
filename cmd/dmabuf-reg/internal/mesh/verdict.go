// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/mesh"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// line formats one line, without what would move a cursor.
func line(format string, args ...any) string { return terminal.Line(fmt.Sprintf(format, args...)) }

// bad says in words what is not right, "" if nothing is.
func (r *Result) bad() string {
	n := r.Count()
	var list []string
	for _, s := range []struct {
		state mesh.State
		words string
	}{{mesh.Unreached, "not reached"}, {mesh.Failed, "failed later"}, {mesh.Lost, "lost with a node"}} {
		if n[s.state] > 0 {
			list = append(list, fmt.Sprintf("%d of %s %s", n[s.state], human.Plural(len(r.Links), "pair"), s.words))
		}
	}
	lost := 0
	for _, node := range r.Nodes {
		if node.Lost {
			lost++
		}
	}
	if lost > 0 {
		list = append(list, human.Plural(lost, "node")+" lost during the run")
	}
	if len(r.Slow) > 0 {
		list = append(list, human.Plural(len(r.Slow), "finding")+" of slowness")
	}
	return strings.Join(list, ", ")
}

// unknown says in words what was not measured, "" if all was.
func (r *Result) unknown() string {
	var list []string
	nodes, nics := 0, 0
	for i := range r.Nodes {
		if r.Nodes[i].Fault != nil && !r.Nodes[i].Lost {
			nodes++
		} else if r.nicsOf(i) == 0 {
			nodes++
		}
	}
	for i := range r.NICs {
		if r.NICs[i].Fault != nil {
			nics++
		}
	}
	if nodes > 0 {
		list = append(list, human.Plural(nodes, "node")+" without a worker, or whose worker has no NIC")
	}
	if nics > 0 {
		list = append(list, human.Plural(nics, "NIC")+" that cannot take part")
	}
	if n := r.Count()[mesh.Unknown]; n > 0 {
		list = append(list, fmt.Sprintf("%d of %s not measured", n, human.Plural(len(r.Links), "pair")))
	}
	return strings.Join(list, ", ")
}

func (r *Result) nicsOf(node int) (n int) {
	for i := range r.NICs {
		if r.NICs[i].Node == node {
			n++
		}
	}
	return n
}

// verdict is the error that gives the exit status.
func (r *Result) verdict(ctx context.Context) error {
	n := r.Count()
	switch bad, unknown := r.bad(), r.unknown(); {
	case r.Interrupted:
		return errors.Join(context.Cause(ctx))
	case n[mesh.Reached]+n[mesh.Failed]+n[mesh.Unreached] == 0:
		if bad != "" {
			unknown = strings.Trim(bad+", "+unknown, ", ")
		}
		if unknown == "" {
			unknown = "there are no pairs of NICs of two nodes"
		}
		return &cli.Unavailable{Err: errors.New("nothing was measured: " + unknown)}
	case bad != "":
		return errors.New(bad)
	case unknown != "":
		return &cli.Unavailable{Err: errors.New("nothing bad is known, and this is not known: " + unknown)}
	}
	return nil
}
