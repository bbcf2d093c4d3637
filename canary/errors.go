// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// ErrStalled means that a transfer has neither completed nor failed within
// the Stall of the call's options. errors.Is finds it in a *TransferError.
var ErrStalled = errors.New("no completion")

// ErrNothingChecked means that every case that was asked for needs a larger
// buffer.
var ErrNothingChecked = errors.New("the buffer is too small for any of the cases asked for: nothing was checked")

// Failure is the error of a verification in which a case has failed. errors.As
// finds the first failing case's own error, if it has one: a [*Mismatch],
// [*TransferError], [*AcceptedError] or [*ibvfd.RegError].
type Failure struct {
	Report *Report
	Err    error // of the first case that failed
}

// Error names the first case that failed and counts the others.
func (f *Failure) Error() string {
	failed := f.Report.Failed()
	if len(failed) == 0 {
		return fmt.Sprintf("verification of %s on %s failed: %v", f.Report.Exporter, f.Report.NIC, f.Err)
	}
	s := fmt.Sprintf("verification of %s on %s failed: %s: %v", f.Report.Exporter, f.Report.NIC, failed[0].Name, f.Err)
	if n := len(failed) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Unwrap returns the first failing case's error.
func (f *Failure) Unwrap() error { return f.Err }

// TransferError means that a transfer has not completed, or has completed with
// an error.
type TransferError struct {
	Op     string // "RDMA WRITE" or "RDMA READ"
	NIC    string
	Offset int64 // of the buffer
	Length int64
	RKey   uint32
	Remedy string
	Err    error // *ibvfd.WCError for an error completion, ErrStalled, or a failure to post
}

// Error returns all fields in one line.
func (e *TransferError) Error() string {
	s := fmt.Sprintf("%s of %d bytes at offset %#x on %s (rkey %#x): %v", e.Op, e.Length, e.Offset, e.NIC, e.RKey, e.Err)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *TransferError) Unwrap() error { return e.Err }

// AcceptedError means that the NIC has carried out an access that the MR does
// not allow, or has refused it in another way than the protocol says.
type AcceptedError struct {
	Op    string
	Range string // of the buffer
	MR    string // registered range
	Err   error  // the completion's error, which is no remote access error; nil if the access was carried out
}

// Error describes the access, and how the NIC has answered it.
func (e *AcceptedError) Error() string {
	s := fmt.Sprintf("%s at %s with the key of an MR over %s ", e.Op, e.Range, e.MR)
	if e.Err == nil {
		return s + "was carried out; a remote access error was due"
	}
	return s + fmt.Sprintf("ended in another error than a remote access error: %v", e.Err)
}

// Unwrap returns Err.
func (e *AcceptedError) Unwrap() error { return e.Err }

// remedy says what to look at after an error completion on a loopback pair.
func remedy(err error, stall time.Duration) string {
	var wc *ibvfd.WCError
	if !errors.As(err, &wc) {
		if errors.Is(err, ErrStalled) {
			return fmt.Sprintf("nothing came back for %v: check that the port is active (rdma link) and look for errors of the NIC in the kernel log", stall)
		}
		return ""
	}
	switch wc.Status {
	case ibvfd.WCRemAccessErr:
		return "the NIC refused the remote key or range: the MR does not cover these addresses, or its memory was revoked"
	case ibvfd.WCLocProtErr:
		return "the NIC refused the local key or range, or could not reach the memory: look for IOMMU faults in the kernel log"
	case ibvfd.WCRetryExcErr, ibvfd.WCRespTimeoutErr:
		return "the peer, this same port, did not answer: check that the port and its net device are up (rdma link, ip link) and that the GID's address is still there (ip addr)"
	case ibvfd.WCRNRRetryExcErr:
		return "the peer had no receive posted"
	case ibvfd.WCRemOpErr:
		return "the responder failed while it accessed the memory: look in the kernel log for its reason"
	case ibvfd.WCLocQPOpErr, ibvfd.WCFatalErr:
		return "the NIC reports an internal error: look in the kernel log"
	case ibvfd.WCWRFlushErr:
		return "the queue pair failed before this transfer: was the device removed, or its net device taken down?"
	}
	return ""
}
