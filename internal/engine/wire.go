// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// The exchange runs over TCP, or over a stream of rdma_cm. A message is its body's length in 4
// bytes, its kind in one byte, and the body.
//
//	initiator            acceptor
//	hello            ->
//	                 <-  hello, its queue pairs ready to receive and send
//	ready            ->
//
// A hello may say that a text of the program follows it. After that both sides may send offers
// at any time. A side that ends the connection sends bye; when its NIC does nothing more for
// the connection, it sends gone, and closes the stream. In place of any message before that a
// side may send a reject: it gives the reason why the side ends the connection, and is its last
// message.
//
// A hello of another version is answered by a hello of which only our version is valid: each
// version reads that far, and reports the difference.
type messageKind byte

const (
	msgHello messageKind = 1 + iota
	msgReady
	msgOffer
	msgReject // text, in UTF-8
	msgText   // the program's text, after a hello
	msgBye    // the side ends the connection
	msgGone   // the side's queue pairs are destroyed
)

// maxBody bounds a message's body by its kind, before memory is allocated.
func (k messageKind) maxBody() int {
	switch k {
	case msgHello:
		return 256
	case msgOffer:
		return maxOffer
	case msgText:
		return maxText
	case msgReject:
		return maxRejectText
	}
	return 0
}

// Version 1 had no READ depths, version 2 no reject, version 3 no texts, names, bye or gone.
const exchangeVersion = 4

// maxText is the longest text that a program may send with its hello, in bytes.
const maxText = 4 << 10

const exchangeMagic = 0x47525031 // "GRP1"

// hello is one side of a connection.
type hello struct {
	conn, endpoint uint64                    // the tokens of its keys
	queues         [rc.Queues]ibvfd.Endpoint // their MTU is the one that this side accepts

	// The limits of READs and atomics under way on each queue pair: readsIn is the number that
	// this side answers, which the other side does not exceed; readsOut is the number that it
	// would send, which is sent as in rdma_cm's request and limits nothing yet.
	readsIn, readsOut uint8

	mail mailLimits
	text int // bytes of the text that follows
}

// mailLimits are how many messages a side takes before its program has read one, and their
// longest size; 0 if the program posts receives itself.
type mailLimits struct {
	depth uint16
	size  uint32
}

func (h *hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, exchangeMagic)
	b = binary.BigEndian.AppendUint16(b, exchangeVersion)
	b = binary.BigEndian.AppendUint64(b, h.conn)
	b = binary.BigEndian.AppendUint64(b, h.endpoint)
	b = append(b, byte(len(h.queues)))
	for _, q := range h.queues {
		b = binary.BigEndian.AppendUint32(b, q.QPN)
		b = binary.BigEndian.AppendUint32(b, q.PSN)
		b = binary.BigEndian.AppendUint16(b, q.LID)
		b = binary.BigEndian.AppendUint16(b, uint16(q.MTU))
		b = append(b, q.GID[:]...)
	}
	b = append(b, h.readsIn, h.readsOut)
	b = binary.BigEndian.AppendUint16(b, h.mail.depth)
	b = binary.BigEndian.AppendUint32(b, h.mail.size)
	return binary.BigEndian.AppendUint16(b, uint16(h.text))
}

func (h *hello) decode(data []byte) error {
	r := wire.NewReader("hello", data)
	if magic := r.Uint32(); r.Err == nil && magic != exchangeMagic {
		return r.Fail("it begins with %#x: this is no endpoint", magic)
	}
	if v := r.Uint16(); r.Err == nil && v != exchangeVersion {
		return &versionError{v}
	}
	out := hello{conn: r.Uint64(), endpoint: r.Uint64()}
	if n := r.Byte(); r.Err == nil && n != rc.Queues {
		return r.Fail("%d queue pairs, not %d", n, rc.Queues)
	}
	for i := range out.queues {
		q := &out.queues[i]
		q.QPN, q.PSN, q.LID, q.MTU = r.Uint32(), r.Uint32(), r.Uint16(), int(r.Uint16())
		copy(q.GID[:], r.Take(len(q.GID)))
		switch {
		case r.Err != nil:
			return r.Err
		case q.QPN < 2 || q.QPN >= 1<<24 || q.PSN >= 1<<24: // 0 and 1 are the management's
			return r.Fail("queue pair %#x, packet number %#x", q.QPN, q.PSN)
		case q.MTU < 256 || q.MTU > 256<<4 || q.MTU&(q.MTU-1) != 0:
			return r.Fail("MTU %d", q.MTU)
		case q.GID == [16]byte{} && q.LID == 0:
			return r.Fail("neither GID nor LID")
		}
	}
	out.readsIn, out.readsOut = r.Byte(), r.Byte()
	out.mail.depth, out.mail.size = r.Uint16(), r.Uint32()
	if (out.mail.depth == 0) != (out.mail.size == 0) {
		return r.Fail("%d messages of %d bytes", out.mail.depth, out.mail.size)
	}
	if out.text = int(r.Uint16()); out.text > maxText {
		return r.Fail("a text of %d bytes, of at most %d", out.text, maxText)
	}
	if err := r.End(); err != nil {
		return err
	}
	*h = out
	return nil
}

// helloSize is the size of a hello of this version.
const helloSize = 4 + 2 + 8 + 8 + 1 + rc.Queues*(4+4+2+2+16) + 2 + 2 + 4 + 2

// ourVersion returns the hello that answers a hello of another version.
func ourVersion() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, helloSize), exchangeMagic)
	b = binary.BigEndian.AppendUint16(b, exchangeVersion)
	return b[:helloSize]
}

// writeMessage sends a message in one call.
func writeMessage(w io.Writer, k messageKind, body []byte) error {
	b := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body)))
	b[4] = byte(k)
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage reads a message of kind want. If the peer sent a reject instead, it returns
// rejectedWith's error.
func readMessage(r io.Reader, want messageKind) ([]byte, error) {
	_, body, err := readAny(r, want)
	return body, err
}

// readAny reads a message of one of these kinds, and is otherwise readMessage.
func readAny(r io.Reader, want ...messageKind) (messageKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.BigEndian.Uint32(head[:]), messageKind(head[4])
	wanted := slices.Contains(want, k)
	if !wanted && k != msgReject || n > uint32(k.maxBody()) {
		return 0, nil, &dmabuf.Error{Op: "read an exchange", Detail: fmt.Sprintf("message of kind %d with %d bytes, not of kind %d", k, n, want[0]), Err: ErrMalformed}
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
