// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"fmt"
	"strings"
)

// Outcome is the result of registering a GPU's memory with a NIC, and of the traffic.
type Outcome int

// The outcomes.
const (
	OutcomeUnknown Outcome = iota // whether the NIC reaches the GPU's memory is not known
	Direct                        // the NIC reaches the GPU's memory
	Staged                        // the NIC gets system memory, and the registration reports success
	Refused                       // the registration, or the export before it, fails
	Lost                          // the registration reports success, and the NIC's data does not arrive
	Broken                        // a link is known to break; the result of a registration is not predicted
)

var outcomeNames = []string{"unknown", "direct", "staged", "refused", "lost", "broken"}

// String returns the outcome: "direct".
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("invalid (%d)", int(o))
	}
	return outcomeNames[o]
}

// ParseOutcome reads the name of an outcome, as String writes it. For another name it returns
// OutcomeUnknown, and an error that lists the outcomes.
func ParseOutcome(s string) (Outcome, error) {
	for i, name := range outcomeNames {
		if s == name {
			return Outcome(i), nil
		}
	}
	return OutcomeUnknown, fmt.Errorf("chain: %q is none of the outcomes %v", s, outcomeNames)
}

// Bad reports whether the outcome is known not to be direct.
func (o Outcome) Bad() bool { return o == Staged || o == Refused || o == Lost || o == Broken }

// Stage is the stage of a registration that refuses, by the names of package ibvfd.
type Stage string

// The stages. Up to 6.12 attach calls the map method of a static exporter. If the exporter
// refuses to map, attach returns the error, and the stage is still StageMap.
const (
	StageExport Stage = "export" // the vendor's library or the GPU's driver, before anything is registered
	StageUverbs Stage = "uverbs" // before dma-buf is asked
	StageAttach Stage = "attach"
	StageMap    Stage = "map"
	StageDriver Stage = "driver" // the NIC's driver, after it has got addresses
)

// Remedy is one change.
type Remedy struct {
	Change  string // in words
	Command string // a command, or a parameter of the kernel; "" if there is none
	Weakens string // the protection that the change gives up; "" if none
	// Direct says that with this change alone the prediction is direct. If it is
	// false, the change makes an unknown answer known, or the pair needs other
	// changes, too.
	Direct bool
}

// OfAll returns a copy of the remedy without the NIC in the command, for findings
// about all pairs of a GPU; nil for nil.
func (r *Remedy) OfAll() *Remedy {
	if r == nil {
		return nil
	}
	all := *r
	if command, _, ok := strings.Cut(r.Command, " --nic "); ok {
		all.Command = command
	}
	return &all
}
