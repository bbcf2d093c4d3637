// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// The codes of errors (fi_errno(3)). Code returns the code of an error of this package, and
// errors.Is finds it. Codes without a comment are libfabric's; this package does not return
// them by itself.
const (
	EPERM        = unix.EPERM        // the exchange over TCP would not be encrypted
	EIO          = unix.EIO          // the NIC has reported an error: CQErrEntry.ProvErrno is its status
	EBADF        = unix.EBADF        // the domain, endpoint or memory is closed
	EAGAIN       = unix.EAGAIN       // the queue is full, or has no completion: read the CQ, and try again
	ENOMEM       = unix.ENOMEM       // a limit of memory or of peers is reached
	EACCES       = unix.EACCES       // the key or the memory does not allow the operation
	EBUSY        = unix.EBUSY        // the object is still in use
	EINVAL       = unix.EINVAL       // an argument is wrong, or a range lies outside of its memory
	ENOSYS       = unix.ENOSYS       // this build or this machine has no verbs
	EMSGSIZE     = unix.EMSGSIZE     // an inject or a message has too many bytes
	EOPNOTSUPP   = unix.EOPNOTSUPP   // the operation or the flag is not supported
	ENOTCONN     = unix.ENOTCONN     // the connection has ended, or never existed
	ETIMEDOUT    = unix.ETIMEDOUT    // a timeout has passed
	ECONNREFUSED = unix.ECONNREFUSED // the address has no listener, or the peer has refused the connection
	ECANCELED    = unix.ECANCELED    // the connection has ended before the operation was carried out

	EOTHER      = unix.Errno(256) // another error
	ETOOSMALL   = unix.Errno(257)
	EOPBADSTATE = unix.Errno(258)
	EAVAIL      = unix.Errno(259) // the next entry of the CQ is an error: CQ.ReadErr returns it
	EBADFLAGS   = unix.Errno(260) // an operation has no such flag
	ENOEQ       = unix.Errno(261)
	EDOMAIN     = unix.Errno(262)
	ENOCQ       = unix.Errno(263)
	ECRC        = unix.Errno(264)
	ETRUNC      = unix.Errno(265)
	ENOKEY      = unix.Errno(266) // the key was made for another connection
	ENOAV       = unix.Errno(267)
	EOVERRUN    = unix.Errno(268)
	ENORX       = unix.Errno(269)
)

// fabricErrors are the texts of the codes that only libfabric has.
var fabricErrors = map[unix.Errno]string{
	EOTHER:      "EOTHER (256: unspecified error)",
	ETOOSMALL:   "ETOOSMALL (257: provided buffer is too small)",
	EOPBADSTATE: "EOPBADSTATE (258: operation not permitted in current state)",
	EAVAIL:      "EAVAIL (259: error available)",
	EBADFLAGS:   "EBADFLAGS (260: flags not supported)",
	ENOEQ:       "ENOEQ (261: missing or unavailable event queue)",
	EDOMAIN:     "EDOMAIN (262: invalid resource domain)",
	ENOCQ:       "ENOCQ (263: missing or unavailable completion queue)",
	ECRC:        "ECRC (264: CRC error)",
	ETRUNC:      "ETRUNC (265: truncation error)",
	ENOKEY:      "ENOKEY (266: required key not available)",
	ENOAV:       "ENOAV (267: missing or unavailable address vector)",
	EOVERRUN:    "EOVERRUN (268: queue has been overrun)",
	ENORX:       "ENORX (269: receiver not ready, no receive buffers available)",
}

// fabricErrnos are the errnos that fi_errno(3) has.
var fabricErrnos = map[unix.Errno]bool{
	unix.EPERM: true, unix.ENOENT: true, unix.EINTR: true, unix.EIO: true, unix.E2BIG: true, unix.EBADF: true, unix.EAGAIN: true,
	unix.ENOMEM: true, unix.EACCES: true, unix.EFAULT: true, unix.EBUSY: true, unix.ENODEV: true, unix.EINVAL: true,
	unix.EMFILE: true, unix.ENOSPC: true, unix.ENOSYS: true, unix.ENOMSG: true, unix.ENODATA: true, unix.EOVERFLOW: true,
	unix.EMSGSIZE: true, unix.ENOPROTOOPT: true, unix.EOPNOTSUPP: true, unix.EADDRINUSE: true, unix.EADDRNOTAVAIL: true,
	unix.ENETDOWN: true, unix.ENETUNREACH: true, unix.ECONNABORTED: true, unix.ECONNRESET: true, unix.ENOBUFS: true,
	unix.EISCONN: true, unix.ENOTCONN: true, unix.ESHUTDOWN: true, unix.ETIMEDOUT: true, unix.ECONNREFUSED: true,
	unix.EHOSTDOWN: true, unix.EHOSTUNREACH: true, unix.EALREADY: true, unix.EINPROGRESS: true, unix.EREMOTEIO: true,
	unix.ECANCELED: true, unix.EKEYREJECTED: true,
}

// StrError returns the name, number and meaning of a code (fi_strerror).
func StrError(code unix.Errno) string {
	if s, ok := fabricErrors[code]; ok {
		return s
	}
	return errno.Text(code)
}

// Error is an error with libfabric's code, for errors that do not have it by themselves.
type Error struct {
	Code unix.Errno
	Err  error
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err and Code.
func (e *Error) Unwrap() []error { return []error{e.Err, e.Code} }

// Code returns libfabric's code of an error that this package has returned, as a positive
// number. It returns 0 for nil.
func Code(err error) unix.Errno {
	var coded *Error
	var entry *CQErrEntry
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &entry):
		return entry.Err
	}
	return codeOf(err)
}

// codes are libfabric's codes of errors that have no errno, or a different one.
var codes = []struct {
	err  error
	code unix.Errno
}{
	{operation.ErrQueueFull, EAGAIN},
	{operation.ErrStaleKey, ENOKEY},
	{engine.ErrRejected, ECONNREFUSED},
	{engine.ErrUnsafe, EPERM},
	{engine.ErrMalformed, EINVAL},
	{engine.ErrNotConnected, ENOTCONN},
	{ibvfd.ErrNotBuilt, ENOSYS},
	{ibvfd.ErrNoLibrary, ENOSYS},
	{os.ErrClosed, EBADF},
	{context.DeadlineExceeded, ETIMEDOUT},
	{os.ErrDeadlineExceeded, ETIMEDOUT},
	{context.Canceled, ECANCELED},
}

// codeOf returns libfabric's code of an error of the engine.
func codeOf(err error) unix.Errno {
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code
		}
	}
	e, ok := errno.Of(err)
	switch {
	case ok && (fabricErrnos[e] || fabricErrors[e] != ""):
		return e
	case errors.Is(err, os.ErrPermission):
		return EACCES
	}
	return EOTHER
}

// queueFull is the error of an operation for which there is no room.
var queueFull = &Error{EAGAIN, fmt.Errorf("%w: EndpointOptions.TxSize operations to the peer are under way, or RxSize receives are posted: read completions, or raise it", operation.ErrQueueFull)}

// coded adds libfabric's code to an error of the engine.
func coded(err error) error {
	switch {
	case err == nil:
		return nil
	case err == operation.ErrQueueFull: //nolint:errorlint // the usual error, for which nothing is allocated
		return queueFull
	}
	return withCode(err, codeOf(err))
}

func withCode(err error, code unix.Errno) error {
	if errors.Is(err, code) {
		return err
	}
	return &Error{code, err}
}

// named is a code as an error that has libfabric's text.
type named unix.Errno

func (n named) Error() string { return StrError(unix.Errno(n)) }
func (n named) Unwrap() error { return unix.Errno(n) }

// errorOf returns an error of this package.
func errorOf(op, detail, remedy string, code unix.Errno) error {
	return &failure.Error{Op: op, Detail: detail, Remedy: remedy, Err: named(code)}
}
