// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "github.com/gpurdma/gpurdma/ibvfd/internal/enum"

// Answer is yes, no, or not known.
type Answer int

// The answers.
const (
	Unknown Answer = iota
	Yes
	No
)

var answerNames = [...]string{"unknown", "yes", "no"}

// String returns "yes", "no" or "unknown".
func (a Answer) String() string { return enum.Name(answerNames[:], int(a), "Answer") }

// MarshalText makes an Answer a string in JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// answerOf is Unknown if neither is proven.
func answerOf(yes, no bool) Answer {
	switch {
	case yes:
		return Yes
	case no:
		return No
	}
	return Unknown
}
