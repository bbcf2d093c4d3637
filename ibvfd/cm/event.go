// SPDX-License-Identifier: Apache-2.0

package cm

import "fmt"

// eventType is enum rdma_cm_event_type.
type eventType int

const (
	eventAddrResolved eventType = iota
	eventAddrError
	eventRouteResolved
	eventRouteError
	eventConnectRequest
	eventConnectResponse
	eventConnectError
	eventUnreachable
	eventRejected
	eventEstablished
	eventDisconnected
	eventDeviceRemoval
	eventMulticastJoin
	eventMulticastError
	eventAddrChange
	eventTimewaitExit
)

var eventNames = [...]string{
	"address resolved", "address error", "route resolved", "route error", "connect request", "connect response", "connect error",
	"unreachable", "rejected", "established", "disconnected", "device removal", "multicast join", "multicast error",
	"address change", "timewait exit",
}

// String returns the event in words: "route error".
func (t eventType) String() string {
	if t >= 0 && int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", int(t))
}
