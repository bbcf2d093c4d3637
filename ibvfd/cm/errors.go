// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/devnode"
)

var (
	// ErrNoLibrary means that librdmacm is not installed.
	ErrNoLibrary = errors.New("librdmacm is not installed")
	// ErrBrokenLibrary means that librdmacm is installed, and the dynamic linker refuses it.
	ErrBrokenLibrary = errors.New("librdmacm cannot be loaded")
	// ErrDisconnected means that the peer's program has ended the connection, or has ended itself.
	ErrDisconnected = errors.New("disconnected")
	// ErrSpent means that the ID cannot make another connection: its own is up, has ended or
	// has failed.
	ErrSpent = errors.New("the identifier is spent")
)

// RejectedError says that the peer's program, or its kernel, refused a connection.
type RejectedError struct {
	Reason Reason
	// PrivateData holds the bytes that the peer gave to Reject: over InfiniBand and RoCE always 148,
	// with zeros after them.
	PrivateData []byte
}

// Error says why.
func (e *RejectedError) Error() string { return fmt.Sprintf("rejected: %v", e.Reason) }

// node is what librdmacm opens. Tests look elsewhere.
var node = "/dev/infiniband/rdma_cm"

// explainOpen says why there is no event channel.
func explainOpen(err error) error {
	e := &failure.Error{Op: "rdma_create_event_channel", Device: node, Err: err}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		e.Detail, e.Remedy = devnode.Explain(node, err, "")
		return e
	}
	// librdmacm reports EPERM, or nothing better, for many a cause.
	f, nodeErr := os.OpenFile(node, os.O_RDWR, 0)
	if nodeErr != nil {
		e.Detail, e.Remedy = devnode.Explain(node, nodeErr, "modprobe rdma_ucm, or let udev make the node")
		var n unix.Errno
		if errors.As(nodeErr, &n) {
			e.Err = n
		}
		return e
	}
	_ = f.Close()
	if errors.Is(err, unix.ENODEV) {
		e.Detail = "libibverbs lists no RDMA device"
		e.Remedy = "load the NIC's driver and install its provider (Debian: apt-get install ibverbs-providers)"
	}
	return e
}

// refused wraps the error of a call that failed.
func refused(op, addr string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return &failure.Error{Op: op, Device: addr, Err: err}
	}
	e := &failure.Error{Op: op, Device: addr, Err: err}
	var n unix.Errno
	if errors.As(err, &n) {
		e.Detail, e.Remedy = explainErrno(op, n)
	}
	return e
}

// explainErrno says what an errno means, in a call's answer or in an event.
func explainErrno(op string, n unix.Errno) (detail, remedy string) {
	switch n {
	case unix.ENODEV, unix.EADDRNOTAVAIL:
		if op == opBind {
			return "no RDMA device is on the network device that has this address, or none has it",
				"use an address of a network device that has one (rdma link show), or none for all of them"
		}
		return "the route to this address goes by a network device without an RDMA device",
			"see `ip route get` and `rdma link show`; make one there, or name one's address as the source"
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return "there is no way to this address", "see `ip route get`; is the peer's machine up?"
	case unix.ETIMEDOUT:
		if op == opConnect || op == opAccept {
			return "the peer's rdma_cm does not answer", "is its machine up, and UDP port 4791 (RoCE v2) not filtered?"
		}
		return "the address does not answer", "is the peer's machine up, and its network device?"
	case unix.EADDRINUSE:
		return "another program listens there", "use another port; `rdma resource show cm_id` tells who"
	case unix.EACCES, unix.EPERM:
		if op == opBind {
			return "ports below 1024 are for privileged programs", "use a port of 1024 or above, or give the process CAP_NET_BIND_SERVICE"
		}
	case unix.ECONNREFUSED:
		return "no program listens there", "start the peer, or check the port"
	case unix.EMFILE:
		return "this process has no file descriptor left", "raise RLIMIT_NOFILE (ulimit -n)"
	}
	return "", ""
}

// unexpected turns an event that is not the one that was waited for into an
// error.
func unexpected(op, addr string, ev *event) error {
	e := &failure.Error{Op: op, Device: addr}
	switch {
	case ev.typ == eventRejected && ev.status > 0:
		r := &RejectedError{Reason: Reason(ev.status), PrivateData: ev.data}
		e.Err, e.Remedy = r, r.Reason.remedy()
	case ev.typ == eventDisconnected:
		e.Err, e.Detail = ErrDisconnected, "the peer, or its process, has ended"
	case ev.typ == eventDeviceRemoval:
		e.Err, e.Detail, e.Remedy = unix.ENODEV, "the RDMA device is being removed", "close everything of this device"
	case ev.status < 0:
		n := unix.Errno(-ev.status)
		e.Err = n
		e.Detail, e.Remedy = explainErrno(op, n)
		if e.Detail == "" {
			e.Detail = ev.typ.String()
		}
	default:
		e.Err, e.Detail = unix.EPROTO, fmt.Sprintf("event %v, status %d", ev.typ, ev.status)
	}
	return e
}
