// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// CQ is the completion queue of an endpoint (struct fid_cq). The program has to read it, which
// also posts operations that wait in queues. Several goroutines may call its methods at once;
// each entry goes to one of them.
type CQ struct {
	ep *engine.Endpoint

	mu   sync.Mutex
	free [][]operation.Completion // reused
}

// CQEntry says that an operation has succeeded (struct fi_cq_data_entry, with the address that
// fi_cq_readfrom returns).
type CQEntry struct {
	OpContext any    // of the operation
	Flags     Flags  // the kind of the operation, and RemoteCQData if Data is valid
	Len       int64  // number of bytes that were moved; of a receive, those received
	Data      uint64 // the data that the peer has sent with its operation
	SrcAddr   Addr   // the peer, of sends and of receives
}

// CQErrEntry says that an operation has failed (struct fi_cq_err_entry). It is an error:
// errors.Is finds Err in it, and errors.As finds an *[ibvfd.WCError] if the NIC has reported the
// failure.
type CQErrEntry struct {
	OpContext any
	Flags     Flags
	SrcAddr   Addr

	Err       unix.Errno // libfabric's code: EIO if the NIC has reported the error, ECANCELED if the NIC has flushed the operation
	ProvErrno int        // the NIC's status, an ibvfd.WCStatus; 0 if the NIC has reported nothing
	VendorErr uint32     // the code of the NIC's vendor (err_data)
	Cause     error      // the error, with a text that explains it
}

// Error returns the text of Cause.
func (e *CQErrEntry) Error() string { return e.Cause.Error() }

// Unwrap returns Err and Cause.
func (e *CQErrEntry) Unwrap() []error { return []error{e.Err, e.Cause} }

// String returns the flags, the context, the codes and the cause in one line.
func (e *CQErrEntry) String() string {
	return fmt.Sprintf("%v with context %v: %s, provider's error %d: %v", e.Flags, e.OpContext, StrError(e.Err), e.ProvErrno, e.Cause)
}

// errAvail says that the next entry is an error.
var errAvail error = named(EAVAIL)

// Read takes up to len(dst) entries of operations that have succeeded, and returns their number
// (fi_cq_read, fi_cq_readfrom). If there is none, it returns [EAGAIN]. If the next entry is an
// error, it returns [EAVAIL], and ReadErr takes the entry.
func (q *CQ) Read(dst []CQEntry) (int, error) {
	list := q.take(len(dst))
	defer q.put(list)
	n, failed, err := q.ep.PollGood(list)
	switch {
	case err != nil:
		return 0, coded(err)
	case n == 0 && failed:
		return 0, errAvail
	case n == 0:
		return 0, EAGAIN
	}
	for i := range list[:n] {
		c := &list[i]
		dst[i] = CQEntry{OpContext: c.Context, Flags: flagsOf(c), Len: c.Len, Data: uint64(c.Data), SrcAddr: Addr(c.Peer)}
	}
	return n, nil
}

// Sread waits until there is an entry, and is then as Read (fi_cq_sread); an empty dst is
// [EINVAL]. If ctx ends first, it returns [EAGAIN], in an error that wraps ctx's error;
// operations under way continue.
func (q *CQ) Sread(ctx context.Context, dst []CQEntry) (int, error) {
	if len(dst) == 0 {
		return 0, errorOf("read a completion queue", "no room for entries", "", EINVAL)
	}
	for {
		n, err := q.Read(dst)
		if err != EAGAIN { //nolint:errorlint // Read's own
			return n, err
		}
		if err := q.ep.WaitNext(ctx); err != nil {
			if why := ctx.Err(); why != nil && errors.Is(err, why) {
				return 0, &Error{EAGAIN, err}
			}
			return 0, coded(err)
		}
	}
}

// ReadErr takes the next entry if it is an error (fi_cq_readerr), and returns [EAGAIN] if it is
// not.
func (q *CQ) ReadErr() (*CQErrEntry, error) {
	c, ok, err := q.ep.PollFailed()
	switch {
	case err != nil:
		return nil, coded(err)
	case !ok:
		return nil, EAGAIN
	}
	e := &CQErrEntry{OpContext: c.Context, Flags: flagsOf(&c), SrcAddr: Addr(c.Peer), Cause: c.Err}
	var w *ibvfd.WCError
	switch {
	case !errors.As(c.Err, &w):
		e.Err = codeOf(c.Err)
		return e, nil
	case w.Status == ibvfd.WCWRFlushErr:
		e.Err = ECANCELED
	default:
		e.Err = EIO
	}
	e.ProvErrno, e.VendorErr = int(w.Status), w.VendorErr
	return e, nil
}

// take returns room for n completions.
func (q *CQ) take(n int) []operation.Completion {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last := len(q.free) - 1; last >= 0 {
		list := q.free[last]
		q.free = q.free[:last]
		if cap(list) >= n {
			return list[:n]
		}
	}
	return make([]operation.Completion, n)
}

// maxFree is the number of unused lists that a CQ keeps.
const maxFree = 16

func (q *CQ) put(list []operation.Completion) {
	clear(list)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.free) < maxFree {
		q.free = append(q.free, list)
	}
}
