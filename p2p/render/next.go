// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// next says what to do after reading: how to come to a pair if there is none, how to see the links
// of one that is not direct, how to prove those that are.
func next(b *strings.Builder, s Style, r result.Run) {
	open := slices.IndexFunc(r.Pairs, func(p result.Pair) bool { return p.Counts && p.Outcome != chain.Direct.String() })
	switch {
	case r.Summary.Total() == 0 && len(r.Unread) > 0 && s.Copy:
		s.fold(b, "next: ", "      ", "take the copy again, as root, or read it as root: a GPU or an RDMA device may be among what could not be read.")
	case r.Summary.Total() == 0 && len(r.Unread) > 0:
		s.fold(b, "next: ", "      ", "run p2pcheck as root, outside of containers: a GPU or an RDMA device may be among what could not be read.")
	case r.Summary.Total() == 0 && len(r.GuestNICs) > 0:
		s.fold(b, "next: ", "      ", "run p2pcheck in the guest, too, which has the RDMA devices. Below, ISO-GIVEN-AWAY checks the host's part in the guest's pairs.")
	case r.Summary.Total() == 0:
		s.fold(b, "next: ", "      ", "p2pcheck looks for GPUs with memory of their own and for RDMA devices. It reads a machine that has them, or a snapshot of it:")
		b.WriteString("        p2pcheck snapshot FILE      there\n        p2pcheck --snapshot FILE    here\n")
	case r.Live != nil && r.Live.Tried > 0:
	case open >= 0:
		p := r.Pairs[open]
		same := ""
		if s.Copy && s.Flags == "" {
			same = ", with the same input"
		}
		changes := "the changes above"
		if below := failing(r); below != "" {
			changes += ", and " + below
		}
		s.fold(b, "next: ", "      ", changes+". Each link of a pair, and what it rests on"+same+":")
		fmt.Fprintf(b, "        p2pcheck why %s %s%s\n", p.GPU, p.NIC, s.Flags)
	default:
		prove := "prove it, as root:"
		if s.Copy {
			prove = "prove it on the machine itself, as root:"
		}
		if below := failing(r); below != "" {
			prove = "change " + below + "; then " + prove
		}
		s.fold(b, "next: ", "      ", prove)
		b.WriteString("        p2pcheck --live\n")
	}
}

// failing names the checks that fail and stand below: "" if there are none.
func failing(r result.Run) string {
	var ids []string
	withPairs := r.Told()
	for i, f := range r.Checks {
		if f.Result == "fail" && !withPairs[i] && !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return "what fails below (" + human.First(ids, ShownPairs) + ")"
}
