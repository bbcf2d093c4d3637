// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Report is the result of a verification ([Verify]).
//
// Its JSON form is part of the commands' documented output.
type Report struct {
	OK bool `json:"ok"` // each case has passed, or had nothing to check

	Spec     string `json:"spec"`     // the name of the allocator (gpualloc)
	Exporter string `json:"exporter"` // the dma-buf exporter's name
	Driver   string `json:"driver"`   // the kernel driver behind it, such as vgem
	Device   string `json:"device"`   // the node that the memory comes from, such as /dev/dri/renderD128
	NIC      string `json:"nic"`      // the name of the RDMA device
	Size     int64  `json:"size"`     // the bytes of the buffer
	Seed     uint64 `json:"seed"`     // with the same seed another run has the same bytes and ranges

	Inode   uint64        `json:"inode"`  // the inode of the dma-buf; of the first one of several segments
	Route   ibvfd.Route   `json:"route"`  // the call that registered the whole buffer
	MRs     int           `json:"mrs"`    // how many MRs that took, one for each segment
	MRN     *uint32       `json:"mrn"`    // the number of the first MR in `rdma resource show mr`; null if unknown
	LKey    uint32        `json:"lkey"`   // the first MR's key for work requests of this side
	RKey    uint32        `json:"rkey"`   // the first MR's key for work requests of a peer
	RegTime time.Duration `json:"reg_ns"` // the time that the registrations of the whole buffer took

	// WriteRate is the rate of one WRITE at a time over the whole buffer, from posting to completion,
	// without the time that making and comparing bytes takes.
	WriteRate float64 `json:"write_bytes_per_s"`
	// ReadRate is the rate of one READ at a time over the whole buffer, measured as WriteRate is.
	ReadRate float64 `json:"read_bytes_per_s"`

	// VerifiedBytes are the bytes that were compared and found right, guards included. A byte counts
	// each time.
	VerifiedBytes int64         `json:"verified_bytes"`
	Elapsed       time.Duration `json:"elapsed_ns"` // the time that the verification took
	Cases         []Case        `json:"cases"`      // the results of the cases
}

// Case is the result of one check.
type Case struct {
	Name     string    `json:"name"`               // the name of the case
	Offset   int64     `json:"offset"`             // where the registered range begins in the buffer, in bytes
	Length   int64     `json:"length"`             // the length of the registered range in bytes
	IOVA     uint64    `json:"iova"`               // the address by which work requests name the first byte of the registration
	OK       bool      `json:"ok"`                 // the case has passed; false also if Skipped or NotRun
	Skipped  bool      `json:"skipped"`            // the buffer has nothing to check for this case; Detail says why
	NotRun   bool      `json:"not_run"`            // the case was not reached, after an earlier case had broken the link
	Detail   string    `json:"detail"`             // the result in words, or why the case was skipped or failed
	Mismatch *Mismatch `json:"mismatch,omitempty"` // the wrong bytes
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
