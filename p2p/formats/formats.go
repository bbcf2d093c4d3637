// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// Format writes a run for another program, and returns the exit status that this program
// expects.
type Format func(b *strings.Builder, run Input) (status int)

// All are the formats, by the values of --format. The caller must not change it.
var All = map[string]Format{
	"nagios": nagios, "npd": npd, "nfd": NFD, "dra": dra,
}

// Input has the facts that a format writes.
type Input struct {
	Found  *result.Run // nil if nothing could be read
	Status int         // the exit status of the run
	Errors []Problem   // files and devices that could not be read
}

// Problem is one thing that could not be read.
type Problem struct {
	Kind    string // the kind of error, in one word: "unavailable"
	Message string
}
