// SPDX-License-Identifier: Apache-2.0

package gpurdma

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

// rejectedWith is the error of a peer that has sent a reject. The text is the peer's: it is
// quoted, so that it brings no control characters to a terminal.
func rejectedWith(text []byte) error { return fmt.Errorf("%w: %q", ErrRejected, text) }

// versionError is a hello of another version.
type versionError struct{ theirs uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d, this is version %d", e.theirs, exchangeVersion)
}

// rejection is an error of which the peer is told a text that is meant for it.
type rejection struct {
	text string // for the peer
	err  error  // for this side
}

func (r *rejection) Error() string { return r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

const (
	textRefused = "refused" // all that a peer is told of an error of ours
	textClosing = "the endpoint is closing"
	textFull    = "the endpoint has as many peers as it may have"
)

// rejectWait bounds how long sending a reject may take.
const rejectWait = time.Second

// reject tells a caller that is not connected why, as far as it is its concern. A caller
// that has not said hello is told only that the endpoint is closing: it may be no endpoint
// at all.
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

// boundedText is text as a reject may have it.
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
