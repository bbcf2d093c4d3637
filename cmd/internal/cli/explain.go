// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// Error is an error in its parts: the operation, the device, the stage that
// refused, the cause and the remedy. Empty parts are not known.
type Error struct {
	// Kind is what went wrong, for programs. `usage`: the command line has a mistake, and nothing was
	// tried. `unavailable`: this machine or build lacks what the command needs, such as a device, a
	// library or cgo. `interrupted`: a signal ended the command, which has closed everything.
	// `registration`: an MR was refused. `transfer`: a work request ended in an error, or did not end.
	// `mismatch`: bytes were wrong. `accepted`: an access that the MR forbids was carried out.
	// `operation`: another call of the kernel or of a library failed. `program`: a program that the
	// command ran did not succeed. `other`: none of these.
	Kind    string `json:"kind"`
	Message string `json:"message"` // all of the error, in one line
	// Subject is which of several things failed, such as "udmabuf with rxe0".
	Subject string `json:"subject,omitempty"`
	Op      string `json:"op,omitempty"`     // the name by which the kernel or the library knows what was tried
	Device  string `json:"device,omitempty"` // the object of the operation: a device, a file, a descriptor
	// Route is the call of a refused registration; "peer-direct" only where --route allows it.
	Route  string `json:"route,omitempty"`
	Detail string `json:"detail,omitempty"` // the numbers that matter, in words
	Stage  *Stage `json:"stage,omitempty"`  // of a refused registration: between which stages the refusal lies
	// Cause is the cause of a refused registration as it is classified, or what was refused beforehand
	// without asking the kernel: Errno is then the number that the kernel has for it.
	Cause string `json:"cause,omitempty"`
	Errno *Errno `json:"errno,omitempty"` // the kernel's error number
	// Status is the status of the work completion of a failed transfer (docs/reference/errors.md has
	// them).
	Status string           `json:"wc_status,omitempty"`
	Vendor uint32           `json:"wc_vendor_err,omitempty"` // the NIC vendor's own number for the status
	Wrong  *canary.Mismatch `json:"mismatch,omitempty"`      // the wrong bytes
	Remedy string           `json:"remedy,omitempty"`        // what to change
}

// What went wrong, for programs.
const (
	KindUsage        = "usage"
	KindUnavailable  = "unavailable"
	KindInterrupted  = "interrupted"
	KindRegistration = "registration" // an MR was refused
	KindTransfer     = "transfer"     // a work request ended in an error
	KindMismatch     = "mismatch"     // bytes were wrong
	KindAccepted     = "accepted"     // a forbidden access was carried out
	KindOperation    = "operation"    // any other call of the kernel or a library
	KindProgram      = "program"      // a program that the command ran did not succeed
	KindOther        = "other"
)

// Kinds are all kinds.
var Kinds = []string{
	KindUsage, KindUnavailable, KindInterrupted, KindRegistration, KindTransfer, KindMismatch, KindAccepted, KindOperation, KindProgram, KindOther,
}

// Stage says between which stages of a registration the refusal lies.
type Stage struct {
	Earliest string `json:"earliest"` // the earliest stage that can have refused
	// Latest is the latest stage that can have refused; equal to Earliest if the stage is proven.
	Latest string `json:"latest"`
}

// Errno is a kernel error number with its name.
type Errno struct {
	// Name is the kernel's name, such as "EINVAL". Numbers that only the kernel uses have one, too:
	// 524 is "ENOTSUPP".
	Name   string `json:"name"`
	Number int    `json:"number"` // a positive number
}

func newErrno(n unix.Errno) *Errno {
	if n == 0 {
		return nil
	}
	return &Errno{errno.Name(n), int(n)}
}

// Explain takes err apart, one entry for each error that was joined in it.
func Explain(err error) []Error {
	if err == nil {
		return nil
	}
	// Only errors.Join makes a list; other errors with several causes are one.
	if reflect.TypeOf(err) == joined {
		var list []Error
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			list = append(list, Explain(e)...)
		}
		return list
	}
	// The subject belongs to each error that was joined below it.
	if on, ok := err.(*On); ok { //nolint:errorlint // further down it is part of one error
		list := Explain(on.Err)
		for i := range list {
			if list[i].Subject == "" {
				list[i].Subject = on.Subject
			}
		}
		return list
	}
	return []Error{explain(err)}
}

var joined = reflect.TypeOf(errors.Join(io.EOF))

func explain(err error) Error {
	e := Error{Kind: KindOther, Message: err.Error()}
	if n, ok := errno.Of(err); ok {
		e.Errno = newErrno(n)
	}
	var (
		usage    *UsageError
		missing  *Unavailable
		reg      *ibvfd.RegError
		accepted *canary.AcceptedError
		transfer *canary.TransferError
		mismatch *canary.Mismatch
		op       *failure.Error
	)
	var program *Exit
	// The outermost kinds first: they say most.
	switch {
	case errors.As(err, &program):
		e.Kind = KindProgram
	case errors.Is(err, ErrInterrupted):
		e.Kind = KindInterrupted
	case errors.As(err, &usage):
		e.Kind = KindUsage
	case errors.As(err, &reg):
		e.Kind, e.Op, e.Device, e.Route = KindRegistration, "register MR", reg.Device, string(reg.Route)
		e.Stage = &Stage{reg.Earliest.String(), reg.Latest.String()}
		e.Cause, e.Detail, e.Remedy = reg.Cause.String(), reg.Detail, reg.Remedy
		e.Errno = newErrno(reg.Errno)
	case errors.As(err, &accepted):
		e.Kind, e.Op = KindAccepted, accepted.Op
	case errors.As(err, &transfer):
		e.Kind, e.Op, e.Device, e.Remedy = KindTransfer, transfer.Op, transfer.NIC, transfer.Remedy
		e.Detail = fmt.Sprintf("%d bytes at offset %#x, rkey %#x", transfer.Length, transfer.Offset, transfer.RKey)
	case errors.As(err, &mismatch):
		e.Kind, e.Wrong = KindMismatch, mismatch
	case errors.As(err, &op):
		e.Kind, e.Op, e.Device, e.Detail, e.Remedy = KindOperation, op.Op, op.Device, op.Detail, op.Remedy
		e.Cause = strings.TrimSuffix(beforehand(err), "; "+op.Remedy)
	}
	var wc *ibvfd.WCError
	if errors.As(err, &wc) {
		e.Status, e.Vendor = wc.Status.String(), wc.VendorErr
	}
	if errors.As(err, &missing) {
		e.Kind = KindUnavailable
	}
	return e
}

// beforehand says what this module refused without asking the kernel.
func beforehand(err error) string {
	switch {
	case errors.Is(err, failure.ErrLimit):
		return "over the limit: refused beforehand, the kernel was not asked"
	case errors.Is(err, failure.ErrRange):
		return "out of range: refused beforehand, the kernel was not asked"
	case errors.Is(err, dmabuf.ErrNotDMABuf):
		return "not a dma-buf"
	case errors.Is(err, failure.ErrInUse):
		return "still in use"
	case errors.Is(err, gid.ErrNone):
		return noGID(err)
	}
	return ""
}

// noGID is what is wrong with each GID.
func noGID(err error) string {
	_, why, _ := strings.Cut(err.Error(), gid.ErrNone.Error())
	return gid.ErrNone.Error() + strings.ReplaceAll(why, ": "+unix.EADDRNOTAVAIL.Error(), "") // each port's
}

// PrintErrors writes errors for people: a line that says what happened, and one
// for each thing known about it.
func PrintErrors(w io.Writer, program string, err error) {
	for _, e := range Explain(err) {
		subject := e.Subject
		if subject != "" {
			subject += ": "
		}
		fmt.Fprintf(w, "%s: %s%s\n", program, subject, e.headline())
		for _, part := range e.parts() {
			fmt.Fprintf(w, "  %-8s %s\n", part[0]+":", part[1])
		}
	}
}

func (e *Error) headline() string {
	switch e.Kind {
	case KindRegistration:
		if e.Stage != nil && e.Stage.Latest == fault.StageArgs.String() {
			return "registration on " + e.Device + ": refused beforehand"
		}
		return e.Device + " refused the registration"
	case KindOperation, KindTransfer:
		s := e.Op + " failed"
		if e.Device != "" {
			s = e.Op + " on " + e.Device + " failed"
		}
		return s
	default:
		return e.Message
	}
}

func (e *Error) parts() (list [][2]string) {
	add := func(name, value string) {
		if value != "" { // errors that were joined are lines
			list = append(list, [2]string{name, strings.ReplaceAll(value, "\n", "; ")})
		}
	}
	switch e.Kind {
	case KindRegistration, KindOperation, KindTransfer:
	default: // the message has everything else
		return nil
	}
	add("what", e.Detail)
	add("route", e.Route)
	if e.Stage != nil {
		where := e.Stage.Earliest + ", proven: " + stages[e.Stage.Earliest]
		if e.Stage.Latest != e.Stage.Earliest {
			where = "between " + e.Stage.Earliest + " and " + e.Stage.Latest + ": the evidence allows no more; `dmabuf-reg register --trace` of the same can tell"
		}
		add("stage", where)
	}
	add("cause", e.cause())
	if e.Status != "" {
		add("status", fmt.Sprintf("%s (vendor error %#x)", e.Status, e.Vendor))
	}
	if e.Errno != nil {
		add("errno", errno.Text(unix.Errno(e.Errno.Number)))
	}
	add("remedy", e.Remedy)
	return list
}

// stages says in words where a registration was refused.
var stages = map[string]string{
	fault.StageArgs.String():     "refused beforehand, neither library nor kernel was asked",
	fault.StageProvider.String(): "libibverbs or its provider, the kernel was not asked",
	fault.StageUverbs.String():   "ib_uverbs or the driver's entry, before the memory was looked at",
	fault.StageGet.String():      "the descriptor, or the check of the range",
	fault.StageAttach.String():   "the exporter did not let the NIC attach",
	fault.StagePin.String():      "the exporter did not pin the buffer",
	fault.StageMap.String():      "the exporter did not map the buffer for the NIC",
	fault.StageDriver.String():   "the NIC's driver or firmware",
}

// cause is the classified one, or else the innermost words of the message.
func (e *Error) cause() string {
	if e.Cause != "" {
		return e.Cause
	}
	if e.Errno != nil || e.Status != "" {
		return ""
	}
	s := strings.TrimSuffix(e.Message, "; "+e.Remedy)
	if _, after, ok := strings.Cut(s, e.Detail+": "); ok && e.Detail != "" {
		return after
	}
	if _, after, ok := strings.Cut(s, e.Device+": "); ok && e.Device != "" {
		return after
	}
	return s
}
