// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/placement"
)

// contradictions writes the proofs that contradict their predictions. They come before all else,
// because the other predictions are then in doubt.
func contradictions(b *strings.Builder, s Style, r result.Run) {
	var order []string
	groups := map[string][]result.Pair{}
	for _, p := range r.Pairs {
		if p.Proof == nil || p.Proof.Agrees != placement.No {
			continue
		}
		var lines strings.Builder
		s.label(&lines, "predicted: ", registrationLine(p.Registration)+": "+strings.Join(p.Registration.Why, "; "))
		s.label(&lines, "proven:    ", p.Proof.String())
		key := lines.String()
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.Paint("1;31", "THE PROOF CONTRADICTS THE PREDICTION"))
	for _, key := range order {
		s.fold(b, "", margin, names(groups[key], true))
		b.WriteString(key)
	}
	b.WriteString("The proof is right. `p2pcheck snapshot FILE` keeps what the prediction rests on.\n")
}

// liveText writes the matrix of the proofs, then their reasons.
func liveText(b *strings.Builder, s Style, r result.Run) {
	if r.Live == nil {
		return
	}
	if r.Live.Tried == 0 {
		if r.Live.Untried != "" {
			b.WriteString("\n")
			s.fold(b, "", margin, "Nothing was proven: "+r.Live.Untried)
		}
		return
	}
	done := "registered, written and read"
	if r.Live.Unmoved != "" {
		done = "registered; nothing was written and read"
	}
	fmt.Fprintf(b, "\nLive proof: %s\n", done)
	matrix(b, s, r, provenCell)
	for _, l := range looks {
		proofs(b, s, r, l)
	}
	fmt.Fprintf(b, "\n%s tried: %s; %d against the prediction\n",
		human.Plural(r.Live.Tried, "pair"), r.Live.Proven.Counts(), r.Live.Contradicted)
	if r.Live.Untraced != "" {
		s.fold(b, "", margin, "Not traced, so nothing proves where the bytes were: "+r.Live.Untraced)
	}
	if r.Live.Unmoved != "" {
		s.fold(b, "", margin, "Not written and read, so nothing proves that bytes arrive: "+r.Live.Unmoved)
	}
}

// provenCell is the cell of a pair in the matrix of the proofs. A step that failed after the
// registration stands beside the outcome.
func provenCell(p result.Pair) cell {
	if p.Proof == nil {
		return cell{"-", ""}
	}
	l := lookOf(p.Proof.Outcome)
	c := cell{l.word, l.color}
	if result.Still(p) {
		c = cell{l.word + ", not moved", "33"}
	}
	for _, s := range p.Proof.Steps {
		if s.Result == "fail" && s.Step != p2p.RungPlace.String() && s.Step != p2p.RungRegister.String() {
			c = cell{c.text + ", not " + s.Step, "31"}
		}
	}
	if p.Proof.Agrees == placement.No {
		c = cell{c.text + " (!)", "31"}
	}
	return c
}

// proofs writes the proofs of one outcome that have a step that failed or is unknown. Verbose text
// has all of them.
func proofs(b *strings.Builder, s Style, r result.Run, l look) {
	var order []string
	groups := map[string][]result.Pair{}
	for _, p := range r.Pairs {
		if p.Proof == nil || p.Proof.Outcome != l.outcome.String() {
			continue
		}
		steps := proofText(s, p.Proof)
		if steps == "" {
			continue
		}
		word := l.word
		switch {
		case p.Proof.Errno != nil:
			word += " with " + p.Proof.Errno.Name
		case l.outcome == chain.OutcomeUnknown:
			word = "UNKNOWN"
		}
		key := word + "\n" + steps
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	for _, key := range order {
		word, steps, _ := strings.Cut(key, "\n")
		b.WriteString("\n")
		s.head(b, "", l.color, word, names(groups[key], s.Verbose))
		b.WriteString(steps)
	}
}

// proofText has the steps that did not pass, and what the kernel logged meanwhile.
func proofText(style Style, q *result.Proof) string {
	var b strings.Builder
	all := style.Verbose
	for _, s := range q.Steps {
		if all || s.Result == "fail" || s.Result == "unknown" {
			style.label(&b, fmt.Sprintf("%-10s  %-7s  ", s.Step, s.Result), s.Detail)
		}
	}
	if all && q.WriteRate > 0 {
		host := ""
		if q.HostWrite > 0 {
			host = fmt.Sprintf(" (host memory: %s, %s)", human.Rate(q.HostWrite), human.Rate(q.HostRead))
		}
		fmt.Fprintf(&b, "  %s to write, %s to read%s; %s\n", human.Rate(q.WriteRate), human.Rate(q.ReadRate), host, human.Duration(q.Elapsed))
	}
	meanwhile := slices.Concat(q.Log, q.Links, q.Losses)
	for i, line := range meanwhile {
		if i == shownLog && !all {
			fmt.Fprintf(&b, "  and %d more\n", len(meanwhile)-i)
			break
		}
		fmt.Fprintf(&b, "  meanwhile: %s\n", line)
	}
	return b.String()
}

// shownLog is how many lines of the log the text has of a proof.
const shownLog = 4

// registrationLine is the outcome of a predicted registration.
func registrationLine(r result.Registration) string {
	return lookOf(r.Outcome).headline(result.Pair{Errno: r.Errno, Stage: r.Stage})
}
