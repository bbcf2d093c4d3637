// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Report is the result of Verify. Its JSON form is part of the commands'
// documented output.
type Report struct {
	OK bool `json:"ok"` // each case has passed, or had nothing to check

	Spec     string `json:"spec"`     // gpualloc spec of the allocator
	Exporter string `json:"exporter"` // the dma-buf exporter's name
	Driver   string `json:"driver"`   // the kernel driver behind it, such as vgem
	Device   string `json:"device"`   // where the memory came from, such as /dev/dri/renderD128
	NIC      string `json:"nic"`      // RDMA device
	Size     int64  `json:"size"`     // bytes of the buffer
	Seed     uint64 `json:"seed"`     // with the same seed another run has the same bytes and ranges

	// The registration of the whole buffer. A buffer of several segments has
	// several MRs; keys and number are those of the first.
	Inode   uint64        `json:"inode"`
	Route   ibvfd.Route   `json:"route"`
	MRs     int           `json:"mrs"`
	MRN     *uint32       `json:"mrn"` // number in `rdma resource show mr`, null if unknown
	LKey    uint32        `json:"lkey"`
	RKey    uint32        `json:"rkey"`
	RegTime time.Duration `json:"reg_ns"`

	// Bytes per second over the whole buffer, one transfer at a time: post to
	// completion, without the time that making and comparing bytes takes.
	WriteRate float64 `json:"write_bytes_per_s"`
	ReadRate  float64 `json:"read_bytes_per_s"`

	VerifiedBytes int64         `json:"verified_bytes"` // compared and found right, guards included
	Elapsed       time.Duration `json:"elapsed_ns"`
	Cases         []Case        `json:"cases"`
}

// Case is the result of one check.
type Case struct {
	Name    string `json:"name"`
	Offset  int64  `json:"offset"` // of the registered range
	Length  int64  `json:"length"`
	IOVA    uint64 `json:"iova"`
	OK      bool   `json:"ok"`      // false also if Skipped or NotRun
	Skipped bool   `json:"skipped"` // the buffer has nothing to check for this case; Detail says why
	NotRun  bool   `json:"not_run"` // an earlier case has broken the link
	// Detail describes the result, or says why the case was skipped or failed.
	Detail   string    `json:"detail"`
	Mismatch *Mismatch `json:"mismatch,omitempty"`
}

// Failed lists the cases that have neither passed nor were skipped.
func (r *Report) Failed() []Case {
	var out []Case
	for _, c := range r.Cases {
		if !c.OK && !c.Skipped {
			out = append(out, c)
		}
	}
	return out
}
