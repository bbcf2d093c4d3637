// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// ErrStalled is in a TransferError's chain when a transfer neither completed
// nor failed within Options.Stall.
var ErrStalled = errors.New("no completion")

// ErrNothingChecked: every case that was asked for needs a larger buffer.
var ErrNothingChecked = errors.New("the buffer is too small for any of the cases asked for: nothing was checked")

// Failure is the error of a verification that found something wrong. The
// first failing case's own error, if it has one, is reachable by errors.As:
// *Mismatch, *TransferError, *AcceptedError, *ibvfd.RegError.
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

// TransferError is a transfer that did not complete as it should.
type TransferError struct {
	Op     string // "RDMA WRITE" or "RDMA READ"
	NIC    string
	Offset int64 // of the buffer
	Length int64
	RKey   uint32
	Remedy string
	Err    error // *ibvfd.WCError for an error completion, ErrStalled, or a failure to post
}

// Error says which transfer failed, where, on which NIC, and what to change, if that is known.
func (e *TransferError) Error() string {
	s := fmt.Sprintf("%s of %d bytes at offset %#x on %s (rkey %#x): %v", e.Op, e.Length, e.Offset, e.NIC, e.RKey, e.Err)
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap returns the cause.
func (e *TransferError) Unwrap() error { return e.Err }

// AcceptedError is an access that the MR does not allow and that was carried
// out, or refused in another way than the protocol says.
type AcceptedError struct {
	Op    string
	Range string // of the buffer
	MR    string // registered range
	Err   error  // the completion that came instead of a remote access error, nil for success
}

// Error says which access was carried out, or in which other error than a remote access error it ended.
func (e *AcceptedError) Error() string {
	s := fmt.Sprintf("%s at %s with the key of an MR over %s ", e.Op, e.Range, e.MR)
	if e.Err == nil {
		return s + "was carried out; a remote access error was due"
	}
	return s + fmt.Sprintf("ended in another error than a remote access error: %v", e.Err)
}

// Unwrap returns the unexpected completion error, if that is what happened.
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
