// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// maxRejectText bounds the text of a reject, in bytes.
const maxRejectText = 256

// rejectedWith returns the error for a reject of the peer. The peer's text is quoted, so that
// it brings no control characters to a terminal.
func rejectedWith(text []byte) error { return fmt.Errorf("%w: %q", ErrRejected, text) }

// versionError is the error for a hello of another version.
type versionError struct{ theirs uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d, this is version %d", e.theirs, exchangeVersion)
}

// rejection is an error with a text that is sent to the peer.
type rejection struct {
	text string // for the peer
	err  error  // for this side
}

func (r *rejection) Error() string { return r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

const (
	textRefused = "refused" // stands for any other error of this side
	textClosing = "the endpoint is closing"
	textFull    = "the endpoint has as many peers as it may have"
)

// rejectWait bounds how long sending a reject may take.
const rejectWait = time.Second

// reject sends the reason to a caller that is not connected, unless the reason is internal. A
// caller that has not said hello may learn only that the endpoint is closing: it may not be an
// endpoint at all.
func (e *Endpoint) reject(tcp net.Conn, greeted bool, why error) {
	var v *versionError
	var r *rejection
	kind, body := msgReject, []byte(textRefused)
	switch {
	case errors.As(why, &v):
		kind, body = msgHello, ourVersion()
	case e.life.Err() != nil || errors.Is(why, os.ErrClosed):
		body = []byte(textClosing)
	case errors.As(why, &r):
		body = []byte(boundedText(r.text))
	case !greeted:
		return
	}
	_ = tcp.SetDeadline(time.Now().Add(rejectWait))
	_ = writeMessage(tcp, kind, body)
}

// boundedText returns s as valid UTF-8 of at most maxRejectText bytes.
func boundedText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxRejectText {
		return s
	}
	s = s[:maxRejectText]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
