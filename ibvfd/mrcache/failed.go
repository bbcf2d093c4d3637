// SPDX-License-Identifier: Apache-2.0

package mrcache

import (
	"errors"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Failed tells the cache how an operation on the region ended, of this side or
// of the peer to which its key was given: err is its completion's. If that can
// mean that the buffer was revoked, its regions are made unusable, as
// by [Cache.Invalidate], so that the next Get registers it anew; Failed then
// reports true. At worst they were good, and it costs a registration.
//
// What counts is the first error of a queue pair. Those that are flushed after
// it say nothing of their own memory, and would cost registrations, too.
func (r Ref) Failed(err error) bool {
	var wc *ibvfd.WCError
	if r.e == nil || !errors.As(err, &wc) || !ofMemory(wc.Status) {
		return false
	}
	if !r.Dead() {
		r.c.Invalidate(r.e.view.inode)
	}
	return true
}

// ofMemory reports whether a status can be a region's fault.
func ofMemory(s ibvfd.WCStatus) bool {
	switch s {
	case ibvfd.WCLocProtErr, ibvfd.WCLocAccessErr, ibvfd.WCLocQPOpErr,
		ibvfd.WCRemAccessErr, ibvfd.WCRemOpErr, ibvfd.WCFatalErr, ibvfd.WCGeneralErr,
		ibvfd.WCWRFlushErr: // rxe completes local errors so at times
		return true
	}
	return false
}
