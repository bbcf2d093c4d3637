// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
)

// Result is the result of a check.
type Result int

// The results. The zero value is no pass.
const (
	ResultUnknown Result = iota // the value that decides could not be read
	ResultSkip                  // the check does not apply here, or was left out
	ResultPass                  // it is as expected
	ResultWarn                  // it is slower than it could be, or may be in the way
	ResultFail                  // it keeps a NIC from GPU memory, or data from being right
)

var resultNames = []string{"unknown", "skip", "pass", "warn", "fail"}

// String returns the result: "pass".
func (r Result) String() string {
	if r < 0 || int(r) >= len(resultNames) {
		return fmt.Sprintf("invalid (%d)", int(r))
	}
	return resultNames[r]
}
