// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Why writes the chain of one pair, link by link: the claim of each link, its state, the
// evidence, and the remedy. Its errors are those of w.
func Why(w io.Writer, s Style, p result.Pair) error {
	var b strings.Builder
	l := lookOf(p.Outcome)
	fmt.Fprintf(&b, "%s -> %s: %s", p.GPU, p.NIC, s.Paint(l.color, l.headline(p)))
	if p.NCCL != "" {
		fmt.Fprintf(&b, " (%s)", p.NCCL)
	}
	b.WriteString("\n")
	s.fold(&b, "", "", Conclusion(p))
	for _, link := range p.Links {
		decides := link.Link == p.Decides
		if decides && p.Remedy != nil {
			link.Remedy = p.Remedy
		}
		whyLink(&b, s, link, decides)
	}
	for _, note := range p.Notes {
		b.WriteString("\n")
		s.fold(&b, "", "  ", "note: "+note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Conclusion says in one sentence how the outcome of a pair follows from its links.
func Conclusion(p result.Pair) string {
	switch {
	case !p.Counts:
		return "The device has no memory of its own, and the pair does not count."
	case p.Decides == "" && len(p.Costs) > 0:
		return "Every link from library to fabric holds; one costs speed."
	case p.Decides == "":
		return "Every link from library to fabric holds."
	case p.Outcome == chain.OutcomeUnknown.String():
		return fmt.Sprintf("The link %q is not known, and a pair is direct only if each link is known to hold.", p.Decides)
	case p.Outcome == chain.Direct.String():
		return "A live proof has shown it."
	}
	return fmt.Sprintf("The link %q decides.", p.Decides)
}

// stateColors are parameters of SGR.
var stateColors = map[string]string{
	chain.Holds.String(): "32", chain.Costs.String(): "33", chain.Unknown.String(): "33", chain.Breaks.String(): "31",
}

// whyLink writes one link. Its reasons, evidence and remedy stand below it.
func whyLink(b *strings.Builder, s Style, link result.Link, decides bool) {
	const margin = "           "
	claim := link.Link
	if l, err := chain.ParseLink(link.Link); err == nil {
		claim = l.String() + ": " + l.Claim()
	}
	mark := ""
	if decides {
		mark = "  <- decides"
	}
	fmt.Fprintf(b, "\n%s  %s%s\n", s.Paint(stateColors[link.State], fmt.Sprintf("%-9s", link.State)), claim, mark)
	for _, why := range link.Why {
		s.fold(b, margin, margin, why)
	}
	for _, e := range link.Evidence {
		text := e.File
		if e.Value != "" {
			text += ": " + e.Value
		}
		if text != "" {
			s.fold(b, margin+"read: ", margin+"      ", text)
		}
	}
	if r := link.Remedy; r != nil && (s.Verbose || decides || link.State == chain.Costs.String()) {
		s.fold(b, margin+"change: ", margin+"        ", placed(r.Change, r.Command))
		if r.Command != "" {
			fmt.Fprintf(b, "%s        %s\n", margin, s.command(r.Command))
		}
		if r.Weakens != "" {
			s.fold(b, margin+"weakens: ", margin+"         ", r.Weakens)
		}
	}
}
