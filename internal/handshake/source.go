// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net"
	"net/netip"
	"time"
)

const (
	// fullPatience is the time that the listener waits for a caller in one phase while others
	// need its place. It is several times a round trip around the world, and many times longer
	// than a caller on this machine takes.
	fullPatience = time.Second
	// noPatience and less counts as none. It is also the interval at which places are looked at.
	noPatience = 10 * time.Millisecond
	// progress multiplies the patience with callers that have sent something, if another one of
	// their address has connected within progressLasts.
	progress      = 4
	progressLasts = 3 * fullPatience
	// pressedPatience is the longest time that the listener waits for a caller while the kernel's
	// queue of callers is half full, so that the queue does not overflow.
	pressedPatience = fullPatience / 4
	// failing and less is the patience with an address of which at least two callers more have
	// failed to connect than have connected.
	failing = fullPatience / 4

	// recordLasts is the time for which callers that did not connect count against the next
	// ones of their address.
	recordLasts = 30 * time.Second
	// records bounds the number of addresses without a place that are kept.
	records = 1024
	// recordsPerHalf is a number of addresses whose callers have failed to connect. Each such
	// number halves the patience with new addresses, as for an attack from many addresses.
	recordsPerHalf = 64
)

// source is an address that has callers, or had some lately.
type source struct {
	prefix   netip.Prefix
	places   int
	patience time.Duration
	changed  time.Time // the patience

	connected time.Time // when its last caller connected
}

// isFailing reports whether the last callers of an address did not connect.
func (s *source) isFailing() bool { return s.patience <= failing }

// progresses reports whether callers of an address connect.
func (s *source) progresses(now time.Time) bool { return now.Sub(s.connected) < progressLasts }

// addrPorter is an IP address with a port.
type addrPorter interface{ AddrPort() netip.AddrPort }

// prefixOf returns the address that shares places: of IPv6 the /64, in which one host may have
// any address. All addresses of another kind count as one.
func prefixOf(a net.Addr) netip.Prefix {
	p, ok := a.(addrPorter)
	if !ok {
		return netip.Prefix{}
	}
	ip := p.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, _ := ip.Prefix(bits)
	return prefix
}

// source returns the record of an address.
func (p *Pending) source(prefix netip.Prefix, now time.Time) *source {
	if now.Sub(p.swept) >= fullPatience || len(p.sources) > records+p.max {
		p.sweep(now)
	}
	s := p.sources[prefix]
	if s == nil {
		s = &source{prefix: prefix, patience: fullPatience >> (p.doubted / recordsPerHalf), changed: now}
		p.count(s, 1)
		p.sources[prefix] = s
	}
	return s
}

// sweep drops records that are too old to matter, and some more if there are too many.
func (p *Pending) sweep(now time.Time) {
	p.swept = now
	for _, s := range p.sources {
		if s.places == 0 && (now.Sub(s.changed) >= recordLasts || s.patience == fullPatience) {
			p.drop(s)
		}
	}
	if len(p.sources) <= records+p.max {
		return
	}
	for _, s := range p.sources {
		if len(p.sources) <= records*3/4+p.max { // a quarter less, so that the next callers need no sweep
			return
		}
		if s.places == 0 {
			p.drop(s)
		}
	}
}

func (p *Pending) drop(s *source) {
	p.learn(s, fullPatience, s.changed)
	delete(p.sources, s.prefix)
}

// learn changes the patience with an address.
func (p *Pending) learn(s *source, patience time.Duration, now time.Time) {
	p.count(s, -1)
	s.patience, s.changed = patience, now
	p.count(s, 1)
}

// count counts an address among those with less patience.
func (p *Pending) count(s *source, n int) {
	if s.patience <= fullPatience/2 {
		p.doubted += n
	}
}

// failed counts a caller that did not connect.
func (p *Pending) failed(s *source, now time.Time) { p.learn(s, s.patience/2, now) }

// succeeded counts a caller that has connected.
func (p *Pending) succeeded(s *source, now time.Time) {
	s.connected = now
	p.learn(s, (s.patience+fullPatience+1)/2, now)
}
