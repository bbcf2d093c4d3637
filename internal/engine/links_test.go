// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/operation"
)

// A caller that names a connection that is not known, or another peer's, gets no link of it. The connection of
// that name stays as it is.
func TestForeignLink(t *testing.T) {
	s := inMemory(t)
	good, other := newAuthority(t), newAuthority(t)
	opt := func(a, trusted *authority) EndpointOptions {
		cfg := a.config(t, trusted)
		cfg.ClientCAs.AddCert(other.cert)
		return EndpointOptions{TLS: cfg, Outlive: true}
	}
	server := s.endpoint(t, opt(good, good))
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	call := func(a *authority) (client, accepted *Conn) {
		client = must(s.endpoint(t, EndpointOptions{}).ConnectWith(limited(t), addr, opt(a, good)))(t)
		peer := must(server.Accept(limited(t)))(t)
		return client, must(server.lastConn(peer))(t)
	}
	mine, theirs := call(good)
	for name, session := range map[string]uint64{"unknown": 77, "another's": mine.links.session} {
		stranger, _ := call(other)
		stranger.mu.Lock()
		stranger.links.session = session
		tcp := stranger.links.last.tcp
		stranger.mu.Unlock()
		cutOff(tcp)
		<-stranger.ended
		if err := stranger.Works.End.Gone(); !errors.Is(err, operation.ErrPeerGone) || !strings.Contains(err.Error(), "not known any more") {
			t.Errorf("%s: %v", name, err)
		}
		if mine.Works.Over() || theirs.Works.Over() || mine.Lost() != 0 {
			t.Errorf("%s: the connection has lost its link: %v, %v", name, mine.Works.End.Err(), theirs.Works.End.Err())
		}
	}
}

// The number of messages that a peer reports is checked when it makes another link.
func TestWrongCounts(t *testing.T) {
	s := inMemory(t)
	a, b := s.endpoint(t, EndpointOptions{Outlive: true, MailDepth: 4}), s.endpoint(t, EndpointOptions{Outlive: true, MailDepth: 4})
	_ = must(a.Connect(limited(t), must(b.Listen("127.0.0.1:0"))(t).String()))(t)
	c := must(b.lastConn(must(b.Accept(limited(t)))(t)))(t)
	c.links.making.Lock()
	defer c.links.making.Unlock()
	for _, x := range []struct {
		received uint64
		untaken  int
	}{{1, 0}, {0, 5}, {1 << 63, 4}} {
		c.Works.Link.Lose(errCalledAgain)
		if err := c.Works.Link.Unlink(); err != nil {
			t.Fatal(err)
		}
		if err := c.Works.Link.Reconcile(x.received, x.untaken); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d messages, %d of them not taken: %v", x.received, x.untaken, err)
		}
	}
}
