// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/binary"

	"github.com/gpurdma/gpurdma/internal/wire"
)

// RailReport says that the queue pairs of a rail's link are destroyed on one side, and how many
// messages have arrived over the rail.
type RailReport struct {
	Rail     uint8
	Link     uint32 // the rail's links before it
	Received uint64
	Removed  bool // the side's NIC is gone: bytes that it has acknowledged may not be in the memory
}

// Encode returns the body of the message.
func (r RailReport) Encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte{r.Rail}, r.Link)
	b = binary.BigEndian.AppendUint64(b, r.Received)
	if r.Removed {
		return append(b, 1)
	}
	return append(b, 0)
}

// DecodeRailReport decodes a report of a peer.
func DecodeRailReport(body []byte) (RailReport, error) {
	in := wire.NewReader("report of a rail", body)
	r := RailReport{Rail: in.Byte(), Link: in.Uint32(), Received: in.Uint64()}
	removed := in.Byte()
	r.Removed = removed == 1
	switch {
	case in.Err != nil:
	case removed > 1:
		return r, in.Fail("a NIC that is removed is 0 or 1, and not %d", removed)
	case r.Rail >= MaxRails:
		return r, in.Fail("rail %d", r.Rail)
	}
	return r, in.End()
}
