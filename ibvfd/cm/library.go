// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// manager is what this package needs of librdmacm. There are two: the library
// (library_cgo.go) and, in tests, a script. A refusal is a unix.Errno.
type manager interface {
	// channel opens an event channel.
	channel() (channel, error)
}

// channel is a struct rdma_event_channel.
type channel interface {
	fd() int // borrowed; it does not block
	// event takes an event and acknowledges it; unix.EAGAIN if there is none.
	event() (event, error)
	newID() (identifier, error)
	close()
}

// event is what is taken of a struct rdma_cm_event.
type event struct {
	typ    eventType
	status int
	id     identifier // of a connect request: the new one
	asked  depths     // of a connect request: the depths that the peer asks for
	data   []byte     // private
}

// depths are how many READs and atomics may be in flight.
type depths struct {
	in, out uint8 // responder resources, initiator depth
}

// identifier is a struct rdma_cm_id.
type identifier interface {
	bind(a netip.AddrPort) error
	resolveAddr(src, dst netip.AddrPort, timeoutMS int) error // src may be the zero one
	resolveRoute(timeoutMS int) error
	listen(backlog int) error
	connect(p *connParam) error
	accept(p *connParam) error
	reject(data []byte) error
	establish() error
	disconnect() error
	migrate(to channel) error
	// attributes are what a queue pair needs to be connected.
	attributes() (ibvfd.ManagedAttr, error)
	addrs() (local, remote netip.AddrPort)
	// device is the port that the identifier is bound to; zero if it is not bound.
	device() (device, error)
	// context wraps rdma_cm's own; closed is called when it is closed.
	context(closed func()) (*ibvfd.Context, error)
	destroy() error
}

// device is a port of an RDMA device.
type device struct {
	name string
	port int
	most depths // that it allows
}

// connParam is struct rdma_conn_param.
type connParam struct {
	data                 []byte
	depths               depths
	retryCount, rnrRetry uint8
	qpn                  uint32
}

// queuePair is what is needed of an ibvfd.QP.
type queuePair interface {
	Num() uint32
	ConnectManaged(ibvfd.ManagedAttr) error
	Err() error
}
