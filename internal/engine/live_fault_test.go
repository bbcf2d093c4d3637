// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/rma"
)

func deviceOf(e *Endpoint) *memnic.Device { return e.nic.Device().(*memnic.Device) }

// A connection over a path that is cut is lost when an operation has used up its retries, and
// can be made again when the path is mended.
func TestLiveCut(t *testing.T) {
	w := live(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	a, b := deviceOf(w.a), deviceOf(w.b)
	a.On().Cut(a, b)
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "cut"))
	w.failed(w.a, "cut", ibvfd.WCRetryExcErr)
	w.lost(w.a, w.ab)
	w.lost(w.b, w.ba)
	a.On().Mend(a, b)
	w.connect()
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), "mended"))
	w.done(w.a, operation.Write, "mended")
}

// The error of a connection whose port is down says so.
func TestLivePortDown(t *testing.T) {
	w := live(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	deviceOf(w.a).SetPort(false)
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), nil))
	if c := w.wait(w.a); !errors.Is(c.Err, &ibvfd.WCError{Status: ibvfd.WCRetryExcErr}) || !strings.Contains(c.Err.Error(), "port 1 is down") {
		t.Errorf("%+v", c)
	}
}

// A device that is removed ends its connections on both sides.
func TestLiveRemoved(t *testing.T) {
	w := live(t).world(t, EndpointOptions{})
	w.ok(w.a.Recv(hostKind.make(t, w.a.nic, 64).All(), w.ab, "never"))
	deviceOf(w.a).Remove()
	var why *rc.EventError
	if err := w.a.Lost(limited(t), w.ab); !errors.As(err, &why) || why.Event.Type != ibvfd.EventDeviceFatal {
		t.Errorf("%v", err)
	}
	if c := w.wait(w.a); c.Context != "never" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("%+v", c)
	}
	w.lost(w.b, w.ba)
}

// A peer whose machine is lost in silence is given up, with operations under way or without.
func TestLiveMachineLost(t *testing.T) {
	f := memnic.New(memnic.Exchanges(), memnic.TimeScale(0.01))
	s := live(t)
	s.open = func(t testing.TB, opt memory.NICOptions) *memory.NIC {
		n := memory.NewNIC(f.Device("mem0", fewSGEs), opt)
		closing(t, n)
		return n
	}
	w := s.world(t, EndpointOptions{PeerTimeout: 500 * time.Millisecond})
	a, b := deviceOf(w.a), deviceOf(w.b)
	f.Cut(a, b)
	f.CutExchanges(memstream.Silent, b)
	if err := w.a.Lost(limited(t), w.ab); !errors.Is(err, ErrNotConnected) || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("%v", err)
	}
	w.lost(w.b, w.ba)
}

// WRITEs whose bytes are late are where FlagDeliveryComplete, a message, or data says that they
// are.
func TestLivePlacement(t *testing.T) {
	w := live(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a.nic, 64), hostKind.make(t, w.b.nic, 64)
	rb := w.share(theirs.All(), allAccess)
	deviceOf(w.a).On().OnPlace(func(memnic.Placement) time.Duration { return memnic.Held })
	put := func(v byte) []byte {
		p := make([]byte, 64)
		p[0], p[63] = v, v
		w.ok(second(mine.WriteAt(p, 0)))
		return p
	}
	before := content(t, theirs)
	put(1)
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "acknowledged"))
	w.done(w.a, operation.Write, "acknowledged")
	same(t, "acknowledged", theirs, before)

	want := put(2)
	w.ok(w.a.WriteMsg(rma.Msg{Local: []memory.Span{mine.All()}, Peer: w.ab, Remote: []memory.RemoteSpan{rb.All()}, Context: "delivered"}, operation.FlagDeliveryComplete))
	w.done(w.a, operation.Write, "delivered")
	same(t, "delivered", theirs, want)

	want = put(3)
	w.ok(w.b.Recv(memory.Span{}, w.ba, "message"))
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "acknowledged"))
	w.done(w.a, operation.Write, "acknowledged")
	w.ok(w.a.Send(memory.Span{}, w.ab, "sent"))
	w.done(w.a, operation.Send, "sent")
	w.done(w.b, operation.Recv, "message")
	same(t, "before a message", theirs, want)
}
