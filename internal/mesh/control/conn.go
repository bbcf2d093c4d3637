// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/exchange"
)

// ErrMalformed means that the other side has sent what no coordinator and no worker sends.
var ErrMalformed = exchange.ErrMalformed

// Protection is that of the connections between hosts: mutual TLS, a loopback address, or plaintext.
type Protection = exchange.Protection

// maxMessage bounds a message in bytes: a roster is the longest.
const maxMessage = MaxNodes*(maxName+3) + 1<<10

// Conn carries messages. One goroutine reads, and any number write.
type Conn struct {
	net    net.Conn
	worker bool // this side is the worker

	mu    sync.Mutex
	limit time.Duration // of a write
}

// NewConn makes a connection of one that is protected. worker says that this side is the worker; limit
// bounds how long a write may wait for the other side.
func NewConn(c net.Conn, worker bool, limit time.Duration) *Conn {
	return &Conn{net: c, worker: worker, limit: limit}
}

// Dial connects to a worker, and protects the connection.
func Dial(ctx context.Context, addr, host string, p Protection, limit time.Duration) (*Conn, error) {
	d := net.Dialer{KeepAliveConfig: KeepAlive}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	protected, err := p.Protect(ctx, c, host, true)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return NewConn(protected, false, limit), nil
}

// KeepAlive finds a host that is lost without a word.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// RemoteAddr is the other side's address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// Close ends the connection.
func (c *Conn) Close() error { return c.net.Close() }

// Send sends a message.
func (c *Conn) Send(m *Message) error {
	if err := m.check(c.worker); err != nil {
		return fmt.Errorf("a message was not sent: %w", err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.net.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return err
	}
	_, err = c.net.Write(frame)
	return err
}

// Receive waits for a message of the other side for a limited time.
func (c *Conn) Receive(limit time.Duration) (*Message, error) {
	if err := c.net.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.net, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if head[0] >= 0x14 && head[0] <= 0x17 && head[1] == 3 {
		return nil, malformed("the other side speaks TLS, and this side does not", "give both sides certificates, or none")
	}
	if n < 2 || n > maxMessage {
		return nil, malformed(fmt.Sprintf("a message of %d bytes, of 2 to %d", n, maxMessage), "see whether the other side is `dmabuf-reg mesh`")
	}
	// The body grows as it comes: 4 bytes of a head reserve no memory.
	var body bytes.Buffer
	if _, err := io.CopyN(&body, c.net, int64(n)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(&body)
	d.DisallowUnknownFields()
	m := new(Message)
	if err := d.Decode(m); err != nil {
		return nil, malformed(err.Error(), "run the same release on both sides")
	}
	if d.More() || d.InputOffset() < int64(n) {
		return nil, malformed("bytes behind a message", "")
	}
	if err := m.check(!c.worker); err != nil {
		return nil, malformed(err.Error(), "")
	}
	return m, nil
}

func malformed(detail, remedy string) error {
	return &failure.Error{Op: "read a message of the mesh", Detail: detail, Remedy: remedy, Err: ErrMalformed}
}

// Same refuses a side that speaks another protocol or version.
func (h *Hello) Same(release string) error {
	switch {
	case h.Protocol != Protocol:
		return &Fault{Cause: Differs, Text: fmt.Sprintf("the other side speaks %q, not %q", h.Protocol, Protocol)}
	case h.Version != Version:
		return &Fault{Cause: Differs, Text: fmt.Sprintf("the other side speaks version %d of the mesh's protocol (release %s), this side version %d (release %s): run the same release on both", h.Version, orUnknown(h.Release), Version, orUnknown(release))}
	}
	return nil
}

func orUnknown(release string) string {
	if release == "" {
		return "unknown"
	}
	return release
}

// NewToken makes a random token.
func NewToken() Token {
	var b [tokenSize / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	return Token(hex.EncodeToString(b[:]))
}
