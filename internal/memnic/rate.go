// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// SetRate sets how many bytes a second each queue pair of the device sends and receives; 0 is no limit. In
// manual mode it does nothing.
func (d *Device) SetRate(send, receive float64) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	d.adapter.sends, d.adapter.receives = send, receive
}

// pace returns how long the bytes of the first work request take at the rates of both devices, once for
// each work request.
func (q *pair) pace() time.Duration {
	peer := q.link.net.pairs[q.to]
	if q.paced || peer == nil {
		return 0
	}
	q.paced = true
	from, to := q.link.adapter, peer.link.adapter
	if q.sends[0].Op == ibvfd.OpRead {
		from, to = to, from
	}
	rate := from.sends
	if r := to.receives; r > 0 && (rate <= 0 || r < rate) {
		rate = r
	}
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(length(q.sends[0].SGE)) / rate * float64(time.Second))
}
