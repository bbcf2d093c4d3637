// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

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

// dmabufSupport is who registers dma-bufs, as the fd -1 probe tells.
type dmabufSupport struct {
	provider, kernel Answer
	providerErrno    unix.Errno
	kernelErrno      unix.Errno
}

// judge reads the two answers to fd -1. The provider's EOPNOTSUPP may be the
// kernel's, passed on: it proves that the provider lacks the op only if the
// kernel itself gives another answer.
func judge(provider, kernel unix.Errno) dmabufSupport {
	s := dmabufSupport{providerErrno: provider, kernelErrno: kernel}
	switch kernel {
	case unix.EBADF:
		s.kernel = Yes
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT:
		s.kernel = No
	}
	switch {
	case provider == errNoSymbol:
		s.provider = No
	case provider == unix.EBADF:
		s.provider = Yes
	case provider == unix.EOPNOTSUPP && s.kernel == Yes:
		s.provider = No
	}
	return s
}

// errNoSymbol is the answer of a libibverbs without ibv_reg_dmabuf_mr: the
// errno of a function that does not exist.
const errNoSymbol = unix.ENOSYS

// dmabufSupport asks once and remembers: drivers do not learn. Callers that
// come at the same time all ask, which harms nothing.
func (pd *PD) dmabufSupport() dmabufSupport {
	if s := pd.ctx.support.Load(); s != nil {
		return *s
	}
	kernel := pd.ctx.file.ProbeDMABuf(pd.handle)
	s := judge(pd.probeProvider(), probeErrno(kernel))
	if s.kernel != Unknown {
		pd.ctx.support.Store(&s)
	}
	return s
}

// probeErrno is a probe's errno; 0 for a driver that accepted fd -1.
func probeErrno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	return errnoOf(err)
}

// probeProvider registers a page of fd -1 through libibverbs.
func (pd *PD) probeProvider() unix.Errno {
	v, err := pd.v.regDMABuf(0, uint64(pageSize), 0, -1, AccessLocalWrite)
	if err == nil {
		_ = v.dereg()
		return 0
	}
	return errnoOf(err)
}

// onlyIoctl reports whether it is known that the kernel registers dma-bufs and
// the provider does not.
func (c *Context) onlyIoctl() bool {
	s := c.support.Load()
	return s != nil && s.provider == No && s.kernel == Yes
}
