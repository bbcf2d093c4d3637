// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Prometheus writes metrics in the text format of Prometheus.
func Prometheus(b *strings.Builder, run Input) int {
	r, status := run.Found, run.Status
	metric := func(name, help string) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
	}
	metric("p2pcheck_status", "Exit status of p2pcheck: 0 good, 1 not, 2 nothing could be read, 3 something is unknown.")
	fmt.Fprintf(b, "p2pcheck_status %d\n", status)
	metric("p2pcheck_errors", "Number of things that could not be read.")
	fmt.Fprintf(b, "p2pcheck_errors %d\n", len(run.Errors))
	if len(run.Errors) > 0 {
		metric("p2pcheck_error", "1 for each thing that could not be read, and why.")
	}
	var said []string
	for _, e := range run.Errors {
		text := quoted(e.Message)
		if slices.Contains(said, text) {
			continue // each series appears once
		}
		said = append(said, text)
		fmt.Fprintf(b, "p2pcheck_error{kind=%s,message=%s} 1\n", quoted(e.Kind), text)
	}
	if r == nil {
		return status
	}
	metric("p2pcheck_pair_outcome", "1 for what becomes of a registration of the GPU's memory with the NIC.")
	for _, p := range r.Pairs {
		if p.Counts {
			fmt.Fprintf(b, "p2pcheck_pair_outcome{gpu=%s,nic=%s,outcome=%s} 1\n", quoted(p.GPU), quoted(p.NIC), quoted(p.Outcome))
		}
	}
	metric("p2pcheck_pair_distance", "The kernel's distance, -1 if it supports no way.")
	for _, p := range r.Pairs {
		if d := p.Decision.Distance; p.Counts && d != nil {
			fmt.Fprintf(b, "p2pcheck_pair_distance{gpu=%s,nic=%s} %d\n", quoted(p.GPU), quoted(p.NIC), *d)
		}
	}
	if r.Live != nil {
		metric("p2pcheck_pair_proof", "1 for what became of a registration when it was tried.")
		for _, p := range r.Pairs {
			if p.Proof != nil {
				fmt.Fprintf(b, "p2pcheck_pair_proof{gpu=%s,nic=%s,outcome=%s} 1\n", quoted(p.GPU), quoted(p.NIC), quoted(result.Became(p)))
			}
		}
		metric("p2pcheck_predictions_contradicted", "Pairs whose proof is against the prediction.")
		fmt.Fprintf(b, "p2pcheck_predictions_contradicted %d\n", r.Live.Contradicted)
	}
	metric("p2pcheck_check", "1 for the worst that a check found.")
	worst := result.Worst(r.Checks)
	for _, id := range result.IDs(r.Checks) {
		fmt.Fprintf(b, "p2pcheck_check{id=%s,result=%s} 1\n", quoted(id), quoted(worst[id]))
	}
	return status
}

// escaped has the escapes that the format knows in a label's value, and no others.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// quoted is a label's value.
func quoted(s string) string {
	return `"` + escaped.Replace(terminal.Escape(s)) + `"`
}
