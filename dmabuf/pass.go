// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// maxPassed is SCM_MAX_FD of include/net/scm.h: the most descriptors of one
// message.
const maxPassed = 253

// Send passes duplicates of bufs with msg over a Unix socket (SCM_RIGHTS,
// unix(7)). msg must hold at least one byte, or a stream socket carries no
// descriptors. The bufs stay the caller's.
func Send(conn *net.UnixConn, msg []byte, bufs ...*Buf) error {
	if len(msg) == 0 || len(bufs) > maxPassed {
		return &failure.Error{
			Op: "sendmsg(SCM_RIGHTS)", Device: connName(conn),
			Detail: fmt.Sprintf("%d bytes, %d dma-bufs", len(msg), len(bufs)),
			Remedy: fmt.Sprintf("send at least one byte and at most %d dma-bufs", maxPassed),
			Err:    failure.ErrRange,
		}
	}
	return withRaw(bufs, nil, func(raw []int) error {
		n, _, err := conn.WriteMsgUnix(msg, unix.UnixRights(raw...), nil)
		if err != nil {
			return &failure.Error{Op: "sendmsg(SCM_RIGHTS)", Device: connName(conn), Detail: fmt.Sprintf("%d dma-bufs", len(bufs)), Err: err}
		}
		// A stream may take less; the descriptors have gone with the first byte.
		for msg := msg[n:]; len(msg) > 0; msg = msg[n:] {
			if n, err = conn.Write(msg); err != nil {
				return &failure.Error{Op: "write", Device: connName(conn), Err: err}
			}
		}
		return nil
	})
}

// withRaw calls fn while the descriptors of all bufs are held open. A Buf that
// comes twice is held once: holding it again could wait for a Close that waits
// for us.
func withRaw(bufs []*Buf, raw []int, fn func(raw []int) error) error {
	i := len(raw)
	if i == len(bufs) {
		return fn(raw)
	}
	if first := slices.Index(bufs[:i], bufs[i]); first >= 0 {
		return withRaw(bufs, append(raw, raw[first]), fn)
	}
	return bufs[i].Do(func(n int) error { return withRaw(bufs, append(raw, n), fn) })
}

// Receive reads one message into msg and takes the dma-bufs that came with it,
// at most max. If it fails, every descriptor that arrived has been closed: one
// that is no dma-buf ([ErrNotDMABuf]), or more than max ([failure.ErrLimit]).
func Receive(conn *net.UnixConn, msg []byte, max int) (n int, bufs []*Buf, err error) {
	const op = "recvmsg(SCM_RIGHTS)"
	if max < 0 || max > maxPassed {
		return 0, nil, &failure.Error{Op: op, Device: connName(conn), Detail: fmt.Sprintf("max %d", max), Remedy: fmt.Sprintf("use 0 to %d", maxPassed), Err: failure.ErrRange}
	}
	control := make([]byte, unix.CmsgSpace(4*max))
	n, controlLen, flags, _, err := conn.ReadMsgUnix(msg, control)
	if err != nil {
		return n, nil, &failure.Error{Op: op, Device: connName(conn), Err: err}
	}
	raw, err := rights(control[:controlLen])
	if err == nil && (flags&unix.MSG_CTRUNC != 0 || len(raw) > max) {
		err = &failure.Error{Op: op, Device: connName(conn), Detail: fmt.Sprintf("more descriptors than max %d", max), Err: failure.ErrLimit}
	}
	for i, r := range raw {
		if err != nil {
			_ = unix.Close(r)
			continue
		}
		var b *Buf
		if b, err = New(r); err != nil {
			err = fmt.Errorf("descriptor %d of %d received from %s: %w", i+1, len(raw), connName(conn), err)
			_ = unix.Close(r)
			continue
		}
		bufs = append(bufs, b)
	}
	if err != nil {
		for _, b := range bufs {
			_ = b.Close()
		}
		return n, nil, err
	}
	return n, bufs, nil
}

// rights collects the descriptors of all control messages.
func rights(control []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var raw []int
	for _, m := range msgs {
		fds, e := unix.ParseUnixRights(&m)
		if e != nil && !errors.Is(e, unix.EINVAL) { // EINVAL: another kind of message
			err = e
		}
		raw = append(raw, fds...)
	}
	return raw, err
}

func connName(conn *net.UnixConn) string {
	if conn == nil || conn.LocalAddr() == nil || conn.LocalAddr().String() == "" {
		return "a Unix socket"
	}
	return "Unix socket " + conn.LocalAddr().String()
}
