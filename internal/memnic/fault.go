// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Cut cuts the path between two devices, in both directions. No byte of a later operation
// lands. In live mode operations end when their retries are used up, unless Mend comes first.
func (n *Network) Cut(a, b *Device) { n.setCut(a, b, true) }

// Mend restores a path that Cut has cut.
func (n *Network) Mend(a, b *Device) { n.setCut(a, b, false) }

func (n *Network) setCut(a, b *Device, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[between(a.adapter, b.adapter)] = cut
}

// LoseAnswers loses the answers that a device gives to operations of another one, or stops doing
// so. The operations are carried out, once; to their sender they look like operations that did
// not arrive.
func (n *Network) LoseAnswers(by, to *Device, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute[span{by.adapter, to.adapter}] = lost
}

// SetPort takes the port of a device down, or up again. A port that is down carries nothing.
func (d *Device) SetPort(up bool) {
	d.net.mu.Lock()
	changed := d.down == up
	d.down = !up
	heard, links := d.events, slices.Clone(d.links)
	d.net.mu.Unlock()
	if !changed {
		return
	}
	e := ibvfd.Event{Type: ibvfd.EventPortErr, Port: 1}
	if up {
		e.Type = ibvfd.EventPortActive
	}
	if heard != nil {
		heard(e)
	}
	if up {
		return
	}
	for _, l := range links {
		d.net.mu.Lock()
		broke := l.a.Broke
		d.net.mu.Unlock()
		if broke != nil {
			broke(&rc.EventError{NIC: d.name, Event: e})
		}
	}
}

// Remove ends a device, as if its card were taken out. All its links end, it carries out no more
// work requests, and it makes no new objects. Bytes that it has acknowledged and still has are lost.
func (d *Device) Remove() {
	e := ibvfd.Event{Type: ibvfd.EventDeviceFatal}
	why := &rc.EventError{NIC: d.name, Event: e}
	d.net.mu.Lock()
	if d.gone != nil {
		d.net.mu.Unlock()
		return
	}
	d.gone = why
	for len(d.held) > 0 {
		d.drop(len(d.held) - 1)
	}
	links, heard := slices.Clone(d.links), d.events
	d.net.mu.Unlock()
	if heard != nil {
		heard(e)
	}
	for _, l := range links {
		l.Break(why)
	}
}

// Removed reports whether Remove was called.
func (d *Device) Removed() bool {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	return d.gone != nil
}

// Break gives a link up, as a NIC does by an asynchronous event: its work requests are not
// carried out, and there are no completions until it fails.
func (l *Link) Break(why error) {
	l.net.mu.Lock()
	if l.end == nil {
		l.end = why
	}
	broke := l.a.Broke
	l.net.mu.Unlock()
	if broke != nil {
		broke(why)
	}
}

// Deafen makes the link answer nothing. Its own operations continue.
func (l *Link) Deafen() {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for _, q := range l.pairs {
		q.deaf = true
	}
}

// Refuse makes Post refuse one work request with ENOMEM. The next work request is number 1.
func (l *Link) Refuse(which int) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.refuse = which
}

// Slow delays the link's work requests until its queue was polled that many times, in manual
// mode.
func (l *Link) Slow(polls int) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.slow = polls
}

// Queue returns the completion queue of the link.
func (l *Link) Queue() *Queue { return l.queue }

// Posted returns the work requests of a queue pair that were not carried out.
func (l *Link) Posted(queue int) (list []ibvfd.SendWR) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for _, r := range l.pairs[queue].sends {
		list = append(list, r.SendWR)
	}
	return list
}

// MTU returns the MTU of a connected queue pair.
func (l *Link) MTU(queue int) int {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.pairs[queue].mtu
}
