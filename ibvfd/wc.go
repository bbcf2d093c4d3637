// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// WCStatus is how a work request ended. The numbers are those of enum
// ibv_wc_status.
type WCStatus uint32

// The completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
)

var wcStatusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "work request flushed", "memory window bind error", "bad response",
	"local access error", "remote invalid request", "remote access error", "remote operation error",
	"transport retry counter exceeded", "receiver-not-ready retry counter exceeded", "local RDD violation",
	"remote invalid RD request", "remote aborted", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout", "general error", "tag matching error", "tag matching rendezvous incomplete",
}

// String returns the status in words: "remote access error".
func (s WCStatus) String() string { return enum.Name(wcStatusNames[:], int(s), "WCStatus") }

// MarshalText makes a WCStatus a string in JSON.
func (s WCStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// WCOpcode is what completed. The numbers are those of enum ibv_wc_opcode.
type WCOpcode uint32

// The completed operations.
const (
	WCOpSend         WCOpcode = 0
	WCOpWrite        WCOpcode = 1
	WCOpRead         WCOpcode = 2
	WCOpCompareSwap  WCOpcode = 3
	WCOpFetchAdd     WCOpcode = 4
	WCOpBindMW       WCOpcode = 5
	WCOpLocalInv     WCOpcode = 6
	WCOpFlush        WCOpcode = 8
	WCOpAtomicWrite  WCOpcode = 9
	WCOpRecv         WCOpcode = 128
	WCOpRecvWriteImm WCOpcode = 129
)

// WCFlags say which fields of a WC are valid. The numbers are those of enum
// ibv_wc_flags.
type WCFlags uint32

// The completion flags.
const (
	WCWithGRH WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3 // the SEND invalidated a memory window
)

// WC is a work completion. If Status is not WCSuccess, only ID, Status, QPN
// and VendorErr are valid (ibv_poll_cq(3)).
type WC struct {
	ID        uint64 // of the work request
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // bytes received or read; a receive of UD counts GRHLen bytes too
	QPN       uint32 // the local queue pair
	SrcQP     uint32 // the sender's, for UD
	Imm       uint32 // host byte order, with WCWithImm; the invalidated key, with WCWithInv
	Flags     WCFlags

	// UD only, for [QP.ReplyAH].
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	PathBits  uint8 // of the destination LID
}

// Err is nil on success, else a *WCError.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &WCError{Status: w.Status, VendorErr: w.VendorErr}
}

// WCError is a work request that ended in an error. The error takes an RC queue pair to the error
// state. By the InfiniBand specification a send that fails takes a UD queue pair to the SQE state
// only, in which its receives go on.
type WCError struct {
	Status    WCStatus
	VendorErr uint32 // the NIC's own code; 0 if it gives none
}

// Error says the status in words.
func (e *WCError) Error() string {
	if e.VendorErr == 0 {
		return fmt.Sprintf("work completion: %v (status %d)", e.Status, uint32(e.Status))
	}
	return fmt.Sprintf("work completion: %v (status %d, vendor error %#x)", e.Status, uint32(e.Status), e.VendorErr)
}

// Is matches another WCError with the same status.
func (e *WCError) Is(target error) bool {
	t, ok := target.(*WCError)
	return ok && t.Status == e.Status
}

// raw is the completion in the library's form.
func (w *WC) raw() *libibverbs.WC {
	return &libibverbs.WC{
		ByteLen: w.ByteLen, QPNum: w.QPN, SrcQP: w.SrcQP, Flags: uint32(w.Flags),
		PKeyIndex: w.PKeyIndex, SLID: w.SLID, SL: w.SL, DLIDBits: w.PathBits,
	}
}
