// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// exchangeFrame returns a message in its wire format.
func exchangeFrame(k exchange.Kind, body []byte) []byte {
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), byte(k))
	return append(b, body...)
}

// offerFrame returns an offer of memory under that token.
func offerFrame(t testing.TB, token uint64) []byte {
	rb := described(t, token, must(layout.Interleaved(layout.Extent{Len: 4}, layout.Dim{Count: 9, Stride: 7}))(t))
	return exchangeFrame(exchange.MsgOffer, append([]byte{0}, must(rb.MarshalBinary())(t)...))
}

// exchanged returns streams with which an exchange begins; some of them are valid.
func exchanged(t testing.TB) [][]byte {
	h := goodHello()
	hello, ready := exchangeFrame(exchange.MsgHello, h.Append(nil)), exchangeFrame(exchange.MsgReady, nil)
	mine, shared := offerFrame(t, h.Conn), offerFrame(t, h.Endpoint)
	return [][]byte{
		nil,
		hello,
		slices.Concat(hello, ready),
		slices.Concat(hello, ready, mine, shared, mine),
		slices.Concat(hello, mine, shared),
		slices.Concat(hello, ready, offerFrame(t, 99)),
		slices.Concat(hello, ready, mine, ready),
		slices.Concat(hello, hello, ready),
		slices.Concat(ready, hello),
		slices.Concat(hello[:20]),
		slices.Concat(hello, ready, mine[:len(mine)-1]),
		slices.Concat(hello, ready, bytes.Repeat(mine, 40)),
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	}
}

// ends reports how a stream of messages ends: whether it makes a connection, how many offers
// the other side may take from it, and whether there are no bytes after them. client reports whether that
// side has called.
func ends(client bool, data []byte) (up bool, offers int, clean bool) {
	next := func(k exchange.Kind) (body []byte, ok bool) {
		if len(data) < 5 || exchange.Kind(data[4]) != k {
			return nil, false
		}
		n := binary.BigEndian.Uint32(data)
		if uint64(n) > uint64(len(data)-5) || int(n) > k.MaxBody() {
			return nil, false
		}
		body, data = data[5:5+n], data[5+n:]
		return body, true
	}
	var h exchange.Hello
	if body, ok := next(exchange.MsgHello); !ok || h.Decode(body) != nil {
		return false, 0, false
	}
	if h.Text > 0 {
		if body, ok := next(exchange.MsgText); !ok || len(body) != h.Text {
			return false, 0, false
		}
	}
	if h.Link > 0 && !client { // it names a connection that this endpoint does not have
		return false, 0, false
	}
	if h.Mail != (exchange.Mail{}) { // this endpoint's program posts receives
		return false, 0, false
	}
	if _, ok := next(exchange.MsgReady); !ok {
		return false, 0, false
	}
	for {
		if len(data) == 0 {
			return true, offers, true
		}
		var rb memory.RemoteBuffer
		body, ok := next(exchange.MsgOffer)
		if !ok || len(body) == 0 || len(body) < 1+int(body[0]) {
			return true, offers, false
		}
		name, body := body[1:1+body[0]], body[1+body[0]:]
		if len(name) > 0 && len(body) == 0 { // a name that is withdrawn
			continue
		}
		if rb.UnmarshalBinary(body) != nil || rb.Token() != h.Conn && rb.Token() != h.Endpoint {
			return true, offers, false
		}
		if len(name) == 0 {
			offers++
		}
	}
}

// hostile lets an endpoint, as client or server, exchange with a peer that sends data,
// whatever it receives, and hangs up. Only a valid hello and a "ready" make a connection. The endpoint takes only offers of the peer's own memory, and takes all of them
// if no invalid bytes follow. Afterwards everything is closed.
func hostile(t testing.TB, client bool, data []byte) {
	f := newFabric()
	n := memory.NewNIC(f.Device("fake0", fewSGEs), memory.NICOptions{})
	e := must(NewEndpoint(n, EndpointOptions{AllowPlaintext: true, AutoReceive: 2, MaxPeers: 1}))(t)
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	up, offers, clean := ends(client, data)
	ready, heard, taken := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		h := goodHello()
		_, _ = io.CopyN(io.Discard, theirs, int64(len(exchangeFrame(exchange.MsgHello, h.Append(nil)))+len(exchangeFrame(exchange.MsgReady, nil))))
		close(ready)
		_, _ = io.Copy(io.Discard, theirs)
	}()
	go func() {
		_, _ = theirs.Write(data)
		if up && client { // a peer that hangs up earlier may prevent the connection
			<-ready
		}
		if clean { // offers end with the connection
			<-taken
		}
		_ = theirs.Close()
	}()

	var id operation.Peer
	if client {
		e.mu.Lock()
		p := must(e.table.insert(""))(t)
		c := e.newConn(p, &e.opt)
		e.mu.Unlock()
		err := (&attempt{e: e, raw: ours, opt: &e.opt, c: c}).run(ctx)
		if err == nil {
			id = p.id
		} else {
			c.Works.Abort(err)
			e.mu.Lock()
			e.table.forget(p.id)
			e.mu.Unlock()
		}
	} else {
		life, caller, err := e.pending.Enter(ctx, ours, bound)
		if err != nil {
			t.Fatal(err)
		}
		_ = (&Listener{e: e, opt: &e.opt, accepted: e.accepted}).acceptCaller(life, caller)
		caller.Leave()
		select {
		case p := <-e.accepted:
			id = p.id
		default:
		}
	}
	if id != 0 && !up || id == 0 && clean {
		t.Errorf("a connection: %v, want %v", id != 0, up)
	}
	if offers == 0 || id == 0 {
		close(taken)
	}
	for id != 0 {
		rb, err := e.Offered(ctx, id)
		if err != nil {
			if !errors.Is(err, ErrNotConnected) || clean && offers > 0 {
				t.Errorf("%d offers are missing: %v", offers, err)
			}
			break
		}
		if offers--; offers < 0 {
			t.Errorf("an offer too many: %+v", rb)
		} else if offers == 0 {
			close(taken)
		}
	}
	if id == 0 && len(e.Peers()) > 0 {
		t.Errorf("somebody without a connection is a peer")
	}
	<-heard // the endpoint has hung up, too
	if err := errors.Join(e.Close(), n.Close()); err != nil || f.Open() != 0 {
		t.Errorf("%v, %d MRs and links are left", err, f.Open())
	}
}

func FuzzExchange(f *testing.F) {
	for _, data := range exchanged(f) {
		f.Add(false, data)
		f.Add(true, data)
	}
	f.Fuzz(func(t *testing.T, client bool, data []byte) { hostile(t, client, data) })
}

// TestSpoiltExchanges changes valid streams in one or two places; FuzzExchange finds its own.
func TestSpoiltExchanges(t *testing.T) {
	r := testenv.Seeded(t)
	good := exchanged(t)
	made := 0
	for range 3000 {
		data := slices.Clone(good[r.IntN(len(good))])
		client := r.IntN(2) == 0
		for range r.IntN(3) {
			if len(data) == 0 {
				break
			}
			at := r.IntN(len(data))
			switch r.IntN(5) {
			case 0:
				data[at] ^= 1 << r.IntN(8)
			case 1:
				data[at] = byte(r.Uint32())
			case 2:
				data = data[:at]
			case 3:
				data = slices.Insert(data, at, data[r.IntN(at+1):at]...)
			case 4:
				data = slices.Delete(data, at, min(len(data), at+1+r.IntN(8)))
			}
		}
		if up, _, _ := ends(client, data); up {
			made++
		}
		if hostile(t, client, data); t.Failed() {
			t.Fatalf("client %v: %x", client, data)
		}
	}
	if made == 0 {
		t.Error("none of them made a connection")
	}
}
