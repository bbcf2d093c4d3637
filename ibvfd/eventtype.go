// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "github.com/gpurdma/gpurdma/ibvfd/internal/enum"

// EventType is what an asynchronous event reports. The numbers are those of
// enum ibv_event_type.
type EventType int

// The events. What each means is in ibv_get_async_event(3).
const (
	EventCQErr            EventType = 0 // of Event.CQ: it overran, and its queue pairs are dead
	EventQPFatal          EventType = 1 // of Event.QP, as the next five
	EventQPRequestErr     EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4 // the first packet came while the queue pair was in RTR
	EventSQDrained        EventType = 5 // [QP.Drain] is done
	EventPathMigrated     EventType = 6
	EventPathMigrateErr   EventType = 7
	EventDeviceFatal      EventType = 8 // close everything: the device is gone or broken
	EventPortActive       EventType = 9 // of Event.Port, as the next four
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14 // of Event.SRQ, as the next one
	EventSRQLimit         EventType = 15 // fewer receives than the limit are left; the limit is off now
	EventQPLastWQE        EventType = 16 // of Event.QP: it takes no more receives from its SRQ
	EventClientReregister EventType = 17 // of Event.Port, as the next one
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19
)

var eventNames = [...]string{
	"CQ error", "QP fatal error", "QP request error", "QP access error", "communication established", "send queue drained",
	"path migrated", "path migration error", "device fatal error", "port active", "port error", "LID change", "P_Key change",
	"subnet manager change", "SRQ error", "SRQ limit reached", "last WQE reached", "client reregister", "GID change", "WQ fatal error",
}

// String returns the event in words: "port error".
func (t EventType) String() string { return enum.Name(eventNames[:], int(t), "EventType") }

// MarshalText makes an EventType a string in JSON.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
