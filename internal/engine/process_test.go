// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// The other process is the test binary, running TestPeerProcess with these set.
const (
	peerAddr = "GPURDMA_TEST_PEER"
	peerKind = "GPURDMA_TEST_KIND"
	peerNIC  = "GPURDMA_TEST_NIC"
)

// machineListen makes TestTwoMachines listen there, with memory of the kind
// peerKind, for the other process on another machine.
const machineListen = "GPURDMA_TEST_LISTEN"

// site is where the other process runs.
type site struct {
	listen    string   // the test's address, to which it connects
	nic       string   // its own
	run       []string // before its command line
	elsewhere bool     // on another machine, where the test does not start it
}

var sameHost = site{listen: "127.0.0.1:0", nic: testNIC}

// Commands of the parent to the other process: a byte, then 8 bytes of a number. The answer is
// the hash of the other process's buffers and of its message completions since the last
// answer.
const (
	cmdFill    = iota // with random bytes, from that seed
	cmdReceive        // so many messages, before the next command
	cmdQuit
)

// Each message has room in both buffers.
const (
	receives    = 4
	receiveRoom = 400
	receiveHead = 130 // bytes of it in the first buffer
)

// receiveInto is where the other process receives a message.
func receiveInto(i int) [2]layout.Extent {
	off := int64(i * receiveRoom)
	return [2]layout.Extent{{Off: off, Len: receiveHead}, {Source: 1, Off: off, Len: receiveRoom - receiveHead}}
}

// noted returns the hashed part of a message's completion. For a write in several work
// requests the completion's length differs from the write's.
func noted(c operation.Completion) []byte {
	if c.Op == operation.RemoteWrite {
		c.Len = min(c.Len, 1)
	}
	return fmt.Appendf(nil, "%v %d %v %#x\n", c.Op, c.Len, c.Flags, c.Data)
}

const commandSize = 9

// procShape is the layout of the memory that the other process shares.
var procShape = layouttest.Shape{Sources: 2, Room: 2000, Blocks: 60}

// TestPeerProcess is the other process, and no test.
func TestPeerProcess(t *testing.T) {
	addr := os.Getenv(peerAddr)
	if addr == "" {
		t.Skip("it is the other process of TestVMTwoProcesses and others")
	}
	s := allKinds(t, os.Getenv(peerNIC))
	k := s.kindNamed(t, os.Getenv(peerKind))
	// The next command may arrive before the answer's own completion.
	e := s.endpoint(t, EndpointOptions{Selective: true, AllowPlaintext: true})
	w := &world{t: t, a: e}
	ctx := limited(t)
	for w.ab == 0 { // on another machine the test may not listen yet
		p, err := e.Connect(ctx, addr)
		if err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		if w.ab = p; err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	g, bufs := buffersOf(t, rand.New(rand.NewPCG(0, 0)), e.nic, k, procShape, memory.RelaxedOrdering)
	cmd, answer := hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	w.ok(e.Recv(cmd.All(), w.ab, "command"))
	w.ok(e.Offer(limited(t), w.ab, must(e.Share(w.ab, wholeOf(t, g...), allAccess))(t)))
	var notes []byte
	for {
		c := w.wait(e)
		if c.Err != nil {
			t.Fatalf("%+v", c)
		}
		if c.Context == "message" {
			notes = append(notes, noted(c)...)
			continue
		}
		p := content(t, cmd)
		switch p[0] {
		case cmdFill:
			refill(t, rand.New(rand.NewPCG(binary.NativeEndian.Uint64(p[1:]), 0)), g, bufs)
		case cmdReceive:
			for i := range int(binary.NativeEndian.Uint64(p[1:])) {
				var into []memory.Span
				for _, r := range receiveInto(i) {
					into = append(into, memory.Span{Buf: g[r.Source], Offset: r.Off, Length: r.Len})
				}
				w.ok(e.RecvV(into, w.ab, "message"))
			}
		case cmdQuit:
			return
		}
		for i, b := range g {
			bufs[i] = content(t, b)
		}
		sum := hash(append(bufs[:len(bufs):len(bufs)], notes))
		notes = nil
		if _, err := answer.WriteAt(sum[:], 0); err != nil {
			t.Fatal(err)
		}
		w.ok(e.Recv(cmd.All(), w.ab, "command"))
		w.ok(e.Send(answer.All(), w.ab, "answer"))
	}
}

// kindNamed returns the kind of that name: of the setting, or of the software GPU whose driver
// the test has loaded.
func (s setting) kindNamed(t testing.TB, name string) kind {
	for _, k := range s.kinds {
		if k.name == name {
			return k
		}
	}
	for _, p := range testenv.LoadedGPUPlaces(t) {
		if p.Name == name {
			return ofGPU(p)
		}
	}
	t.Fatalf("no kind %q", name)
	return kind{}
}

func hash(bufs [][]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, b := range bufs {
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// other is the other process, from the test's point of view.
type other struct {
	*world
	cmd         *exec.Cmd
	rb          *memory.RemoteBuffer
	there       [][]byte // expected bytes of its buffers
	notes       []byte   // expected completions since its last answer
	ask, answer *memory.Buffer
}

func startOther(t *testing.T, s setting, k kind, at site) *other {
	t.Helper()
	return startOtherOf(t, s.endpoint(t, EndpointOptions{AllowPlaintext: true}), k, at)
}

func startOtherOf(t *testing.T, e *Endpoint, k kind, at site) *other {
	t.Helper()
	addr := must(e.Listen(at.listen))(t).String()
	o := &other{world: &world{t: t, a: e}}
	if !at.elsewhere {
		o.start(addr, k, at)
	}
	o.ab = must(e.Accept(limited(t)))(t)
	o.rb = must(e.Offered(limited(t), o.ab))(t)
	o.ask, o.answer = hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	o.there = make([][]byte, procShape.Sources)
	return o
}

func (o *other) start(addr string, k kind, at site) {
	o.t.Helper()
	line := append(at.run[:len(at.run):len(at.run)], must(os.Executable())(o.t), "-test.run=^TestPeerProcess$", "-test.v")
	o.cmd = exec.Command(line[0], line[1:]...)
	o.cmd.Env = append(os.Environ(), peerAddr+"="+addr, peerKind+"="+k.name, peerNIC+"="+at.nic)
	o.cmd.Stdout, o.cmd.Stderr = os.Stderr, os.Stderr
	o.ok(o.cmd.Start())
	o.t.Cleanup(func() { _ = o.cmd.Process.Kill(); _ = o.cmd.Wait() })
}

// tell sends a command, and unless it is the last one compares the other process's answer with
// the expected bytes of its buffers.
func (o *other) tell(what string, cmd byte, number uint64) {
	o.t.Helper()
	p := binary.NativeEndian.AppendUint64([]byte{cmd}, number)
	if _, err := o.ask.WriteAt(p, 0); err != nil {
		o.t.Fatal(err)
	}
	if cmd != cmdQuit {
		o.ok(o.a.Recv(o.answer.All(), o.ab, "answer"))
	}
	o.ok(o.a.Send(o.ask.All(), o.ab, "ask"))
	if cmd == cmdQuit {
		o.wait(o.a) // the process may end before it has acknowledged
		return
	}
	for range 2 { // in any order: the answer may overtake the acknowledgement
		if c := o.wait(o.a); c.Err != nil {
			o.t.Fatalf("%s: %+v", what, c)
		}
	}
	if cmd == cmdFill {
		r := rand.New(rand.NewPCG(number, 0))
		for i := range o.there {
			o.there[i] = make([]byte, procShape.Room)
			for j := range o.there[i] {
				o.there[i][j] = byte(r.Uint32())
			}
		}
	}
	if want := hash(append(o.there[:len(o.there):len(o.there)], o.notes)); string(content(o.t, o.answer)) != string(want[:]) {
		o.t.Fatalf("%s: the other process's bytes, or what it was told, are wrong", what)
	}
	o.notes = nil
}

// Two processes, every kind of memory at both ends: random operations, several at a time;
// after each round the other process sends the hash of its memory.
func TestVMTwoProcesses(t *testing.T) { testTwoProcesses(t, onNIC(t), sameHost, testenv.Count(25)) }

// The same between two machines: testbed/peers/vram-pair.sh.
func TestTwoMachines(t *testing.T) {
	listen := os.Getenv(machineListen)
	if listen == "" {
		t.Skipf("%s is not set: testbed/peers/vram-pair.sh runs it", machineListen)
	}
	noGrowth(t, testNIC)
	s := allKinds(t, testNIC)
	s.kinds = []kind{s.kindNamed(t, os.Getenv(peerKind))}
	testTwoProcesses(t, s, site{listen: listen, elsewhere: true}, testenv.Count(50))
}

func testTwoProcesses(t *testing.T, s setting, at site, rounds int) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			r := testenv.Seeded(t)
			o := startOther(t, s, k, at)
			mine, here := buffersOf(t, r, o.a.nic, k, procShape, memory.RelaxedOrdering)
			o.tell("filled", cmdFill, r.Uint64())
			c := newContest(t, r, procShape)
			c.side = [2]*side{{e: o.a, peer: o.ab, mine: mine, bytes: here, far: o.rb}, {bytes: o.there}}
			for i := range rounds {
				o.round(c, i)
			}
			done := rounds
			c.every(func() { o.round(c, done); done++ })
			o.tell("the last round", cmdReceive, 0)
			t.Logf("%d rounds: %v", done, c.done)
			o.tell("quit", cmdQuit, 0)
			if !at.elsewhere {
				if err := o.cmd.Wait(); err != nil {
					t.Errorf("the other process: %v", err)
				}
			}
			o.broken(o.a, o.ab)
		})
	}
}

// round asks the other process for the result of the round before, and lets it receive some
// messages, which are sent among other operations.
func (o *other) round(c *contest, i int) {
	o.t.Helper()
	n := c.r.IntN(receives + 1)
	o.tell(fmt.Sprintf("round %d", i), cmdReceive, uint64(n))
	for i := range n {
		f := &flight{by: 1, op: operation.Recv}
		for _, r := range receiveInto(i) {
			for k := range r.Len {
				f.to.at = append(f.to.at, c.flat(r.Source, r.Off+k))
			}
		}
		f.writes[1] = c.set(f.to)
		c.post(f, "%d bytes", receiveRoom)
	}
	c.run(8, 1+c.r.IntN(8))
	for _, f := range c.side[1].received {
		c.remove(f)
		o.notes = append(o.notes, noted(f.want)...)
	}
	c.side[1].received = nil
}

// The other process is killed under traffic: every operation completes once, failed ones with
// the NIC's status for a lost peer, or ErrNotConnected; the endpoint accepts another peer.
func TestVMPeerKilled(t *testing.T) {
	e := onNIC(t).endpoint(t, EndpointOptions{AllowPlaintext: true})
	for range 2 {
		o := startOtherOf(t, e, hostKind, sameHost)
		mine := hostKind.make(t, e.nic, 2*procShape.Room)
		o.ok(e.Recv(mine.All(), o.ab, 0))
		posted, done, failed := 1, map[any]bool{}, map[string]int{}
		killed := false
		complete := func() {
			t.Helper()
			c := o.wait(e)
			if n, _ := c.Context.(int); c.Peer != o.ab || n >= posted || done[c.Context] {
				t.Fatalf("%+v, of %d posted", c, posted)
			}
			done[c.Context] = true
			if c.Err == nil && c.Context != 0 {
				return
			}
			// The keys of a process end before its queue pairs, or with them.
			wc, why := (*ibvfd.WCError)(nil), "not connected"
			if errors.As(c.Err, &wc) {
				why = wc.Status.String()
			}
			if failed[why]++; !killed || !(errors.Is(c.Err, ErrNotConnected) ||
				wc != nil && (wc.Status == ibvfd.WCRetryExcErr || wc.Status == ibvfd.WCRemAccessErr)) {
				t.Errorf("killed: %v: %+v", killed, c)
			}
		}
		for {
			var err error
			for err == nil && posted-len(done) < 20 {
				if posted%2 == 0 {
					err = e.Read(mine.All(), o.ab, o.rb.All(), posted)
				} else {
					err = e.Write(mine.All(), o.ab, o.rb.All(), posted)
				}
				if err == nil {
					posted++
				}
			}
			if errors.Is(err, ErrNotConnected) && killed {
				break
			}
			o.ok(err)
			if complete(); len(done) == 50 {
				o.ok(o.cmd.Process.Kill())
				killed = true
			}
		}
		for len(done) < posted {
			complete()
		}
		if !done[0] || len(failed) == 0 {
			t.Errorf("nothing failed, or not the receive: %v", failed)
		}
		t.Logf("%d operations, failed: %v", posted, failed)
		if n, err := e.Poll(make([]operation.Completion, 8)); n != 0 || err != nil {
			t.Errorf("%d completions too many, %v", n, err)
		}
		o.lost(e, o.ab)
	}
}
