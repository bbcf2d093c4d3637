// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Kind is the kind of a message.
type Kind byte

// The kinds of messages.
const (
	MsgHello Kind = 1 + iota
	MsgReady      // the caller has connected its queue pairs; the listener answers that it has, too
	MsgOffer
	MsgReject // text, in UTF-8
	MsgText   // the program's text, after a hello
	MsgBye    // the side ends the connection; the reason, in UTF-8, empty if its program has closed it
	MsgGone   // the side's queue pairs are destroyed
	MsgForgot // the side has taken a withdrawal of a name: one for each, in their order
	MsgRail   // the side's queue pairs of another rail are destroyed: a RailReport
	MsgAddrs  // the addresses of the side's NICs, after a hello
)

// MaxBody bounds a message's body by its kind, before memory is allocated.
func (k Kind) MaxBody() int {
	switch k {
	case MsgHello:
		return 256
	case MsgOffer:
		return MaxOffer
	case MsgText:
		return MaxText
	case MsgReject, MsgBye:
		return MaxReject
	case MsgAddrs:
		return MaxRails * addrSize
	case MsgRail:
		return len(RailReport{}.Encode())
	}
	return 0
}

// WriteMessage sends a message in one call.
func WriteMessage(w io.Writer, k Kind, body []byte) error {
	b := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	b[4] = byte(k)
	_, err := w.Write(append(b, body...))
	return err
}

// ReadMessage reads a message of kind want. If the peer sent a reject instead, it returns
// an ErrRejected.
func ReadMessage(r io.Reader, want Kind) ([]byte, error) {
	_, body, err := ReadAny(r, want)
	return body, err
}

// ReadAny is ReadMessage for a message of any of these kinds.
func ReadAny(r io.Reader, want ...Kind) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if tlsRecord(head[:]) {
		return 0, nil, NewRejection(textPlain, &failure.Error{Op: "read an exchange", Detail: "the other side speaks TLS, and this side does not", Remedy: "set TLS on both sides, or on none", Err: ErrMalformed})
	}
	n, k := binary.BigEndian.Uint32(head[:]), Kind(head[4])
	wanted := slices.Contains(want, k)
	if !wanted && k != MsgReject || n > uint32(k.MaxBody()) {
		return 0, nil, &failure.Error{Op: "read an exchange", Detail: fmt.Sprintf("message of kind %d with %d bytes, not of kind %d", k, n, want[0]), Err: ErrMalformed}
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	if !wanted {
		return 0, nil, rejectedWith(body)
	}
	return k, body, nil
}

// The errors of an exchange.
var (
	ErrMalformed = wire.ErrMalformed // a peer sent bytes that no peer of this package sends
	ErrUnsafe    = errors.New("not protected by TLS")
	ErrRejected  = errors.New("the peer has rejected the connection")
)
