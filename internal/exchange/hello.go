// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Version is the version of the messages. Version 1 had no READ depths, version 2 no reject,
// version 3 no texts, names, bye or gone, version 4 no reason in a bye, and no answer to ready and
// to the withdrawal of a name, version 5 no second link of a connection, version 6 no rails,
// version 7 no notifications with sums, version 8 no addresses of NICs.
const Version = 9

// MaxText is the longest text that a program may send with its hello, in bytes.
const MaxText = 4 << 10

// Magic is the first number of a hello.
const Magic = 0x47525031 // "GRP1"

// Hello is one side of a connection.
type Hello struct {
	Conn, Endpoint uint64                    // the tokens of its keys
	Queues         [rc.Queues]ibvfd.Endpoint // their MTU is the one that this side accepts

	// The limits of READs and atomics under way on each queue pair: ReadsIn is the number that
	// this side answers, which the other side does not exceed. ReadsOut is the number that this
	// side would send, as in a request of rdma_cm; it limits nothing yet.
	ReadsIn, ReadsOut uint8

	Mail Mail
	Text int // bytes of the text that follows

	// Session names a connection that outlives its links; 0 if it does not. Link counts them, 0 for
	// the first. Received is the number of messages of the other side that have arrived, and
	// Untaken how many of these the program has not taken.
	Session  uint64
	Link     uint32
	Received uint64
	Untaken  uint16

	// Rails is the number of NICs that a side would use for rails of a connection; 0 if it has no
	// rails but the first. Rail is the number of this one, 0 for the first; Group is the Session of
	// the first one, 0 in the first one's hello.
	Group       uint64
	Rail, Rails uint8

	Addrs uint8 // addresses that follow
}

// MaxRails is the most rails of a connection.
const MaxRails = 64

// Mail is the number of messages that a side takes before its program has read one, and the
// longest size of one in bytes; 0 if the program posts receives itself.
type Mail struct {
	Depth uint16
	Size  uint32
}

// Append encodes a hello.
func (h *Hello) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, Magic)
	b = binary.BigEndian.AppendUint16(b, Version)
	b = binary.BigEndian.AppendUint64(b, h.Conn)
	b = binary.BigEndian.AppendUint64(b, h.Endpoint)
	b = append(b, byte(len(h.Queues)))
	for _, q := range h.Queues {
		b = binary.BigEndian.AppendUint32(b, q.QPN)
		b = binary.BigEndian.AppendUint32(b, q.PSN)
		b = binary.BigEndian.AppendUint16(b, q.LID)
		b = binary.BigEndian.AppendUint16(b, uint16(q.MTU))
		b = append(b, q.GID[:]...)
	}
	b = append(b, h.ReadsIn, h.ReadsOut)
	b = binary.BigEndian.AppendUint16(b, h.Mail.Depth)
	b = binary.BigEndian.AppendUint32(b, h.Mail.Size)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Text))
	b = binary.BigEndian.AppendUint64(b, h.Session)
	b = binary.BigEndian.AppendUint32(b, h.Link)
	b = binary.BigEndian.AppendUint64(b, h.Received)
	b = binary.BigEndian.AppendUint16(b, h.Untaken)
	b = binary.BigEndian.AppendUint64(b, h.Group)
	return append(b, h.Rail, h.Rails, h.Addrs)
}

// Decode decodes a hello of a peer, and checks all of it.
func (h *Hello) Decode(data []byte) error {
	r := wire.NewReader("hello", data)
	if magic := r.Uint32(); r.Err == nil && magic != Magic {
		return r.Fail("it begins with %#x: another program is at the address", magic)
	}
	if v := r.Uint16(); r.Err == nil && v != Version {
		return &versionError{v}
	}
	out := Hello{Conn: r.Uint64(), Endpoint: r.Uint64()}
	if n := r.Byte(); r.Err == nil && n != rc.Queues {
		return r.Fail("%d queue pairs, not %d", n, rc.Queues)
	}
	for i := range out.Queues {
		q := &out.Queues[i]
		q.QPN, q.PSN, q.LID, q.MTU = r.Uint32(), r.Uint32(), r.Uint16(), int(r.Uint16())
		copy(q.GID[:], r.Take(len(q.GID)))
		switch {
		case r.Err != nil:
			return r.Err
		case q.QPN < 2 || q.QPN >= 1<<24 || q.PSN >= 1<<24: // 0 and 1 are for management datagrams
			return r.Fail("queue pair %#x, packet number %#x", q.QPN, q.PSN)
		case q.MTU < 256 || q.MTU > 256<<4 || q.MTU&(q.MTU-1) != 0:
			return r.Fail("MTU %d", q.MTU)
		case q.GID == [16]byte{} && q.LID == 0:
			return r.Fail("neither GID nor LID")
		}
	}
	out.ReadsIn, out.ReadsOut = r.Byte(), r.Byte()
	out.Mail.Depth, out.Mail.Size = r.Uint16(), r.Uint32()
	if (out.Mail.Depth == 0) != (out.Mail.Size == 0) {
		return r.Fail("%d messages of %d bytes", out.Mail.Depth, out.Mail.Size)
	}
	if out.Text = int(r.Uint16()); out.Text > MaxText {
		return r.Fail("a text of %d bytes, of at most %d", out.Text, MaxText)
	}
	out.Session, out.Link, out.Received, out.Untaken = r.Uint64(), r.Uint32(), r.Uint64(), r.Uint16()
	if r.Err == nil && out.Link == 0 && out.Received|uint64(out.Untaken) != 0 || out.Link != 0 && out.Session == 0 || out.Untaken > out.Mail.Depth {
		return r.Fail("link %d of connection %#x, with %d messages, %d not taken", out.Link, out.Session, out.Received, out.Untaken)
	}
	out.Group, out.Rail, out.Rails = r.Uint64(), r.Byte(), r.Byte()
	if r.Err == nil && (out.Rails > MaxRails || out.Rails > 0 && out.Session == 0 || (out.Rail == 0) != (out.Group == 0) || out.Rail > 0 && (out.Rail >= MaxRails || out.Rails == 0)) {
		return r.Fail("rail %d of %d of connection %#x", out.Rail, out.Rails, out.Group)
	}
	if out.Addrs = r.Byte(); r.Err == nil && (out.Addrs > MaxRails || out.Addrs > 0 && out.Rails == 0) {
		return r.Fail("%d addresses of %d rails", out.Addrs, out.Rails)
	}
	if err := r.End(); err != nil {
		return err
	}
	*h = out
	return nil
}

// HelloSize is the size of a hello of this version.
const HelloSize = 4 + 2 + 8 + 8 + 1 + rc.Queues*(4+4+2+2+16) + 2 + 2 + 4 + 2 + 8 + 4 + 8 + 2 + 8 + 3

// ourVersion returns the hello that answers a hello of another version.
func ourVersion() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, HelloSize), Magic)
	b = binary.BigEndian.AppendUint16(b, Version)
	return b[:HelloSize]
}

// WriteHello sends a hello, the addresses of NICs, and the program's text.
func WriteHello(tcp net.Conn, h *Hello, addrs []netip.Addr, text []byte) error {
	err := WriteMessage(tcp, MsgHello, h.Append(nil))
	if err == nil && h.Addrs > 0 {
		err = WriteMessage(tcp, MsgAddrs, EncodeAddrs(addrs))
	}
	if err == nil && h.Text > 0 {
		err = WriteMessage(tcp, MsgText, text)
	}
	return err
}

// ReadText reads the text of n bytes that follows a hello, and returns what is known of the
// peer.
func ReadText(tcp net.Conn, n int) (PeerInfo, error) {
	info := PeerInfo{Addr: tcp.RemoteAddr()}
	if t, ok := tcp.(*tls.Conn); ok {
		state := t.ConnectionState()
		info.TLS = &state
	}
	if n == 0 {
		return info, nil
	}
	text, err := ReadMessage(tcp, MsgText)
	if err == nil && len(text) != n {
		err = &failure.Error{Op: "read an exchange", Detail: fmt.Sprintf("a text of %d bytes, announced with %d", len(text), n), Err: ErrMalformed}
	}
	info.Hello = text
	return info, err
}

// ReadHello reads a hello.
func ReadHello(tcp net.Conn, h *Hello) error {
	body, err := ReadMessage(tcp, MsgHello)
	if err != nil {
		return err
	}
	return h.Decode(body)
}

// PeerInfo is what is known of a peer.
type PeerInfo struct {
	Addr  net.Addr
	TLS   *tls.ConnectionState // nil without TLS
	Hello []byte               // the text of its program
}
