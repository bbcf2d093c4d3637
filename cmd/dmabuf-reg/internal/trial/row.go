// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/cmd/dmabuf-reg/internal/talk"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
)

// Row is one operation in one direction at one size.
type Row struct {
	// "write", "read", "send", or "atomic" (fetch-and-add and compare-and-swap on 8 bytes)
	Op        string `json:"op"`
	Direction string `json:"direction"` // "out": this side's NIC carries it out; "in": the server's does (--both)
	Size      int64  `json:"size"`      // the bytes of one operation
	Count     int    `json:"count"`     // how many operations there were
	// Elapsed is the time from the first posting to the last completion, with up to 16 operations
	// under way, and atomics one at a time.
	Elapsed  time.Duration `json:"elapsed_ns"`
	Rate     float64       `json:"bytes_per_s"`    // the rate over that time
	OK       bool          `json:"ok"`             // it was carried out, and every byte was right where it landed
	Verified int64         `json:"verified_bytes"` // the bytes that were compared and right, up to 512 behind the target included
	Errors   []cli.Error   `json:"errors"`         // why it is not OK
}

const (
	Out = "out"
	In  = "in"
)

// Planned is a row that is to be.
type Planned struct {
	Op        talk.Op
	Direction string
	Size      int64
}

// Throughput is the bandwidth, or the operations per second if they are small.
func (row *Row) Throughput() string {
	if row.Rate > 0 && row.Rate < 1e6 {
		return fmt.Sprintf("%.0f/s", row.Rate/float64(row.Size))
	}
	return human.Rate(row.Rate)
}

// Arrow is where the bytes go.
func (row *Row) Arrow() string {
	switch there := row.Direction == Out; {
	case row.Op == talk.Atomic.String() && there:
		return "on server"
	case row.Op == talk.Atomic.String():
		return "on here"
	case there == (row.Op == talk.Read.String()):
		return "server -> here"
	}
	return "here -> server"
}

// mismatch is the error of bytes that are wrong, on the side where they landed.
func mismatch(what string, f talk.Finding) error {
	return &canary.Mismatch{
		What: what, Offset: f.First, Last: f.Last, Count: f.Wrong, Expected: f.Want, Got: f.Got,
		Origin: canary.OriginUnknown, LandedAt: -1,
	}
}
