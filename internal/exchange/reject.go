// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxReject bounds the text of a reject, in bytes.
const MaxReject = 256

// rejectedWith returns the error for a reject of the peer. The peer's text is quoted, so that
// it brings no control characters to a terminal.
func rejectedWith(text []byte) error { return fmt.Errorf("%w: %q", ErrRejected, text) }

// versionError is the error for a hello of another version.
type versionError struct{ theirs uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d, this is version %d", e.theirs, Version)
}

// NewRejection returns an error whose text is sent to the peer. The error stays on this side.
func NewRejection(text string, err error) error { return &rejection{text, err} }

// WithoutReason reports whether the peer has rejected the connection without a reason.
func WithoutReason(err error) bool {
	return strings.Contains(err.Error(), strconv.Quote(TextRefused))
}

// Forgotten reports whether the peer has said that it does not know the connection any more, or that
// its endpoint is closing.
func Forgotten(err error) bool {
	return strings.Contains(err.Error(), strconv.Quote(TextUnknown)) || strings.Contains(err.Error(), strconv.Quote(TextClosing))
}

// rejection is an error with a text that is sent to the peer.
type rejection struct {
	text string // for the peer
	err  error  // for this side
}

func (r *rejection) Error() string { return r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

// Texts of rejects.
const (
	TextRefused = "refused" // stands for any other error of this side
	TextClosing = "the listener is closing"
	textTLS     = "this listener speaks TLS: set TLS"
	textPlain   = "this listener does not speak TLS"
	TextFull    = "the listener has as many connections as it may have"
	TextUnknown = "the connection is not known any more: the program has started anew, or has given it up"
	TextBacklog = "the listener's queue (Backlog) is full: its program accepts no connections now"
)

// Reason returns the message with the reason why a caller is not connected; none if the reason is
// internal. A caller that has not sent its hello gets a message only if the endpoint is closing,
// because it may not be an endpoint.
func Reason(why error, greeted, closing bool) (kind Kind, body []byte, ok bool) {
	var v *versionError
	var r *rejection
	switch {
	case errors.As(why, &v):
		return MsgHello, ourVersion(), true
	case closing || errors.Is(why, os.ErrClosed):
		return MsgReject, []byte(TextClosing), true
	case errors.As(why, &r):
		return MsgReject, []byte(Bounded(r.text)), true
	}
	return MsgReject, []byte(TextRefused), greeted
}

// Bounded returns s as valid UTF-8 of at most MaxReject bytes.
func Bounded(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxReject {
		return s
	}
	s = s[:MaxReject]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
