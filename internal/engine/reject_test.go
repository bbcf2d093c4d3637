// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// rejections returns a function for OnReject, and a channel of the errors that it gets.
func rejections() (chan error, func(PeerInfo, error)) {
	heard := make(chan error, 100)
	return heard, func(from PeerInfo, why error) { heard <- fmt.Errorf("%v: %w", from.Addr, why) }
}

func next(t testing.TB, heard chan error) error {
	t.Helper()
	select {
	case err := <-heard:
		return err
	case <-limited(t).Done():
		t.Fatal("nobody was rejected")
	}
	return nil
}

// dialRaw connects as a caller that is no endpoint.
func dialRaw(t testing.TB, addr string) net.Conn {
	t.Helper()
	c := must(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(bound))
	return c
}

// recorded returns a framed hello as an endpoint of that version has sent it.
func recorded(t testing.TB, version int) []byte {
	return must(os.ReadFile(fmt.Sprintf("testdata/exchange/hello-v%d.bin", version)))(t)
}

// The hello of this version has not changed since it was recorded.
func TestRecordedHello(t *testing.T) {
	h := goodHello()
	if got := exchangeFrame(exchange.MsgHello, h.Append(nil)); !bytes.Equal(got, recorded(t, exchange.Version)) {
		t.Errorf("version %d is %x now: raise exchange.Version", exchange.Version, got)
	}
	if n := len(h.Append(nil)); n != exchange.HelloSize {
		t.Errorf("%d bytes, not %d", n, exchange.HelloSize)
	}
}

// Both sides detect another version: the acceptor reads it, and the caller gets a hello with
// the acceptor's version.
func TestOtherVersion(t *testing.T) {
	for version := 2; version < exchange.Version; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) { otherVersion(t, version) })
	}
}

func otherVersion(t *testing.T, version int) {
	s := inMemory(t)
	want := fmt.Sprintf("the peer speaks version %d, this is version %d", version, exchange.Version)
	heard, tell := rejections()
	server := s.endpoint(t, EndpointOptions{OnReject: tell})
	c := dialRaw(t, must(server.Listen("127.0.0.1:0"))(t).String())
	if _, err := c.Write(recorded(t, version)); err != nil {
		t.Fatal(err)
	}
	answer := must(io.ReadAll(c))(t)
	if err := next(t, heard); !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	// Version 2 reads a length of at most 256, kind 1, the magic number, and then the version,
	// which it reports as "version 4; this is version 2".
	if len(answer) < 11 || len(answer) > 5+256 || binary.BigEndian.Uint32(answer) != uint32(len(answer)-5) ||
		!bytes.Equal(answer[4:11], []byte{1, 'G', 'R', 'P', '1', 0, exchange.Version}) {
		t.Errorf("answered with %x", answer)
	}

	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	old := recorded(t, version)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = exchange.ReadMessage(c, exchange.MsgHello)
			_, _ = c.Write(old)
			_ = c.Close()
		}
	}()
	client := s.endpoint(t, EndpointOptions{})
	if _, err := client.Connect(limited(t), l.Addr().String()); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// A silent acceptor may have version 2, which ends the connection without a reason.
func TestHangsUp(t *testing.T) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.ReadFull(c, make([]byte, 5+exchange.HelloSize))
			_ = c.Close()
		}
	}()
	_, err := inMemory(t).endpoint(t, EndpointOptions{}).Connect(limited(t), l.Addr().String())
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

// A rejected caller learns the reason, over TLS, too; the acceptor gets more details.
func TestRejected(t *testing.T) {
	s := inMemory(t)
	good := newAuthority(t)
	heard, tell := rejections()
	server := s.endpoint(t, EndpointOptions{TLS: good.config(t, good), MaxPeers: 1, OnReject: tell})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	first := s.endpoint(t, EndpointOptions{TLS: good.config(t, good)})
	must(first.Connect(limited(t), addr))(t)
	must(server.Accept(limited(t)))(t)
	_, err := s.endpoint(t, EndpointOptions{TLS: good.config(t, good)}).Connect(limited(t), addr)
	if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), `"`+exchange.TextFull+`"`) {
		t.Errorf("%v", err)
	}
	if err := next(t, heard); !strings.Contains(err.Error(), "there are 1 peers") {
		t.Error(err)
	}
}

// A caller gets no details of the acceptor's own errors.
func TestRejectedWithoutDetail(t *testing.T) {
	s := inMemory(t)
	heard, tell := rejections()
	server := s.endpoint(t, EndpointOptions{OnReject: tell})
	replaceDevice(server.nic, brokenDevice{fakeOf(server.nic)})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	_, err := s.endpoint(t, EndpointOptions{}).Connect(limited(t), addr)
	if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), `"refused"`) || strings.Contains(err.Error(), errBroken.Error()) {
		t.Error(err)
	}
	if err := next(t, heard); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

var errBroken = errors.New("no queue pairs today")

type brokenDevice struct{ rc.Device }

func (brokenDevice) Link(rc.Attr) (rc.Link, error) { return nil, errBroken }

// A caller in the middle of the handshake learns that the endpoint is closing.
func TestRejectedByClose(t *testing.T) {
	s := inMemory(t)
	server := s.endpoint(t, EndpointOptions{OnReject: func(from PeerInfo, why error) { t.Errorf("told of %v at the end: %v", from.Addr, why) }})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	for _, said := range [][]byte{nil, recorded(t, exchange.Version)} {
		c := dialRaw(t, addr)
		if _, err := c.Write(said); err != nil {
			t.Fatal(err)
		}
		if said != nil { // and has read the answer
			if _, err := io.ReadFull(c, make([]byte, 5+exchange.HelloSize)); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			_, err := exchange.ReadMessage(c, exchange.MsgHello)
			if !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), exchange.TextClosing) {
				t.Errorf("after %d bytes: %v", len(said), err)
			}
		}()
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// OnReject is called once for a peer that is gone before Accept.
func TestGoneBeforeAccept(t *testing.T) {
	s := inMemory(t)
	heard, tell := rejections()
	server := s.endpoint(t, EndpointOptions{OnReject: tell})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	for range 2 {
		hangUp(t, s.call(t, addr))
	}
	for range 2 {
		if err := next(t, heard); !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "before it was accepted") {
			t.Error(err)
		}
	}
	e := s.call(t, addr)
	must(server.Accept(limited(t)))(t)
	hangUp(t, e)
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if len(heard) > 0 {
		t.Errorf("told of another: %v", <-heard)
	}
}

// A caller that has only said hello takes no place of a peer.
func TestHelloTakesNoPlace(t *testing.T) {
	s := inMemory(t)
	server := s.endpoint(t, EndpointOptions{MaxPeers: 1})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	for range 3 {
		c := dialRaw(t, addr)
		if _, err := c.Write(recorded(t, exchange.Version)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5+exchange.HelloSize)); err != nil {
			t.Fatal(err)
		}
	}
	if list := server.Peers(); len(list) > 0 {
		t.Errorf("peers %v", list)
	}
	s.call(t, addr)
	must(server.Accept(limited(t)))(t)
}

// A caller that loses the last place to another after the hello gets a reject instead of an
// offer.
func TestRejectedAfterHello(t *testing.T) {
	s := inMemory(t)
	server := s.endpoint(t, EndpointOptions{MaxPeers: 1})
	addr := must(server.Listen("127.0.0.1:0"))(t).String()
	late := dialRaw(t, addr)
	if _, err := late.Write(recorded(t, exchange.Version)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(late, make([]byte, 5+exchange.HelloSize)); err != nil {
		t.Fatal(err)
	}
	s.call(t, addr)
	p := must(server.Accept(limited(t)))(t)
	if err := exchange.WriteMessage(late, exchange.MsgReady, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := exchange.ReadMessage(late, exchange.MsgOffer); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), exchange.TextFull) {
		t.Error(err)
	}
	if list := server.Peers(); len(list) != 1 || list[0] != p {
		t.Errorf("peers %v", list)
	}
}
