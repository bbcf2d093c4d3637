// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpurdma

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
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
	elsewhere bool     // on another machine, where somebody else starts it
}

var sameHost = site{listen: "127.0.0.1:0", nic: testNIC}

// What the parent asks of the other process: a byte, then 8 bytes of seed. The
// answer is the hash of its buffers, and of what it was told of messages.
const (
	cmdHash = iota
	cmdFill
	cmdReceive // so many messages, before the next command
	cmdQuit
)

// Each message has room in both buffers.
const (
	receives    = 5
	receiveRoom = 2000
	receiveHead = 700 // of it in the first buffer
)

// noted is what is hashed of a message's completion.
func noted(c Completion) []byte {
	return fmt.Appendf(nil, "%v %d %v %#x\n", c.Op, c.Len, c.Flags, c.Data)
}

const commandSize = 9

// procShape is what the other process shares.
var procShape = shape{sources: 2, room: 20000, blocks: 60}

// TestPeerProcess is the other process, and no test.
func TestPeerProcess(t *testing.T) {
	addr := os.Getenv(peerAddr)
	if addr == "" {
		t.Skip("it is the other process of TestVMTwoProcesses and others")
	}
	s := allKinds(t, os.Getenv(peerNIC))
	k := s.kindNamed(t, os.Getenv(peerKind))
	// The next command may come before the answer's own completion.
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
	g, bufs := regionOf(t, rand.New(rand.NewPCG(0, 0)), e.nic, k, procShape)
	cmd, answer := hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	w.ok(e.Recv(cmd.All(), w.ab, "command"))
	w.ok(e.Offer(limited(t), w.ab, must(e.Share(w.ab, g.All(), allAccess))(t)))
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
			for i := range int64(receives) {
				w.ok(e.RecvV([]Span{
					{Buf: g.bufs[0], Offset: i * receiveRoom, Length: receiveHead},
					{Buf: g.bufs[1], Offset: i * receiveRoom, Length: receiveRoom - receiveHead},
				}, w.ab, "message"))
			}
		case cmdQuit:
			return
		}
		for i, b := range g.bufs {
			bufs[i] = content(t, b)
		}
		sum := hash(append(bufs[:len(bufs):len(bufs)], notes))
		if _, err := answer.WriteAt(sum[:], 0); err != nil {
			t.Fatal(err)
		}
		w.ok(e.Recv(cmd.All(), w.ab, "command"))
		w.ok(e.Send(answer.All(), w.ab, "answer"))
	}
}

// kindNamed is the kind of that name: of the setting, or of the software GPU whose
// driver the test has loaded.
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

// other is the other process, as the test sees it.
type other struct {
	*world
	cmd         *exec.Cmd
	rb          *RemoteBuffer
	there       [][]byte // what its buffers ought to hold
	notes       []byte   // what it ought to have been told
	ask, answer *Buffer
}

func startOther(t *testing.T, s setting, k kind, at site) *other {
	t.Helper()
	e := s.endpoint(t, EndpointOptions{AllowPlaintext: true})
	addr := must(e.Listen(at.listen))(t).String()
	o := &other{world: &world{t: t, a: e}}
	if !at.elsewhere {
		o.start(addr, k, at)
	}
	o.ab = must(e.Accept(limited(t)))(t)
	o.rb = must(e.Offered(limited(t), o.ab))(t)
	o.ask, o.answer = hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	o.there = make([][]byte, procShape.sources)
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

// tell sends a command, and unless it is the last compares what the other
// process answers with what its buffers ought to hold.
func (o *other) tell(what string, cmd byte, seed uint64) {
	o.t.Helper()
	p := binary.NativeEndian.AppendUint64([]byte{cmd}, seed)
	if _, err := o.ask.WriteAt(p, 0); err != nil {
		o.t.Fatal(err)
	}
	if cmd != cmdQuit {
		o.ok(o.a.Recv(o.answer.All(), o.ab, "answer"))
	}
	o.ok(o.a.Send(o.ask.All(), o.ab, "ask"))
	if cmd == cmdQuit {
		o.wait(o.a) // it may be gone before it has acknowledged
		return
	}
	for range 2 { // in any order: the answer may overtake the acknowledgement
		if c := o.wait(o.a); c.Err != nil {
			o.t.Fatalf("%s: %+v", what, c)
		}
	}
	if cmd == cmdFill {
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range o.there {
			o.there[i] = make([]byte, procShape.room)
			for j := range o.there[i] {
				o.there[i][j] = byte(r.Uint32())
			}
		}
	}
	if want := hash(append(o.there[:len(o.there):len(o.there)], o.notes)); string(content(o.t, o.answer)) != string(want[:]) {
		o.t.Fatalf("%s: the other process's bytes are wrong", what)
	}
}

// Two processes, every kind of memory at both ends: layouts are written and
// read, messages are sent, and the other process says what its memory holds.
func TestVMTwoProcesses(t *testing.T) { testTwoProcesses(t, onNIC(t), sameHost) }

// The same between two machines: testbed/peers/vram-pair.sh.
func TestTwoMachines(t *testing.T) {
	listen := os.Getenv(machineListen)
	if listen == "" {
		t.Skipf("%s is not set: testbed/peers/vram-pair.sh runs it", machineListen)
	}
	noGrowth(t, testNIC)
	s := allKinds(t, testNIC)
	s.kinds = []kind{s.kindNamed(t, os.Getenv(peerKind))}
	testTwoProcesses(t, s, site{listen: listen, elsewhere: true})
}

func testTwoProcesses(t *testing.T, s setting, at site) {
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) {
			r := seeded(t)
			o := startOther(t, s, k, at)
			mine, here := regionOf(t, r, o.a.nic, k, procShape)
			o.tell("filled", cmdFill, r.Uint64())
			for range 10 {
				l, m := procShape.layout(t, r, 3)
				n := min(l.Size(), procShape.room)
				all, am := plain(t, mine)
				o.ok(mine.Assign(all))
				// Their layout is read into a plain run, and a run is written to it.
				view := must(o.rb.View(l))(t)
				o.ok(o.a.Read(Span{Region: mine, Length: n}, o.ab, view.Part(0, n), "read"))
				o.done(o.a, OpRead, "read")
				to, from := am.bytes(), m.bytes()
				for i := range n {
					here[to[i].Source][to[i].Offset] = o.there[from[i].Source][from[i].Offset]
				}
				for i, b := range mine.bufs {
					same(t, "read", b, here[i])
				}
				// And ours into a plain run of theirs.
				o.ok(mine.Assign(l))
				at := r.Int64N(o.rb.Size() - n + 1)
				o.ok(o.a.Write(Span{Region: mine, Length: n}, o.ab, o.rb.Part(at, n), "write"))
				o.done(o.a, OpWrite, "write")
				for i := range n {
					o.there[to[at+i].Source][to[at+i].Offset] = here[from[i].Source][from[i].Offset]
				}
				o.tell("written", cmdHash, 0)
			}
			o.tellAndWrite(mine, here)
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

// tellAndWrite does what layouts do not: messages, writes that tell, injected
// ones, several remote ranges in one operation, atomics.
func (o *other) tellAndWrite(mine *Region, here [][]byte) {
	o.t.Helper()
	o.tell("ready to receive", cmdReceive, 0)
	span := func(b int, off, n int64) Span { return Span{Buf: mine.bufs[b], Offset: off, Length: n} }
	put := func(off int64, p []byte) {
		for i := range p {
			at := off + int64(i)
			o.there[at/procShape.room][at%procShape.room] = p[i]
		}
	}
	get := func(off, n int64) (p []byte) {
		for at := off; at < off+n; at++ {
			p = append(p, o.there[at/procShape.room][at%procShape.room])
		}
		return p
	}
	message := func(i int, p []byte, flags Flags, data uint32) {
		n := copy(o.there[0][i*receiveRoom:][:receiveHead], p)
		copy(o.there[1][i*receiveRoom:], p[n:])
		o.notes = append(o.notes, noted(Completion{Op: OpRecv, Len: int64(len(p)), Flags: flags, Data: data})...)
	}
	told := func(n int64, data uint32) {
		o.notes = append(o.notes, noted(Completion{Op: OpRemoteWrite, Len: n, Flags: FlagRemoteCQData, Data: data})...)
	}

	o.ok(o.a.SendMsg(Msg{Local: []Span{span(0, 100, 900), span(1, 5000, 600)}, Peer: o.ab, Context: 0}, 0))
	o.done(o.a, OpSend, 0)
	message(0, slices.Concat(here[0][100:1000], here[1][5000:5600]), 0, 0)
	o.ok(o.a.SendMsg(Msg{Local: []Span{span(1, 1, receiveRoom)}, Peer: o.ab, Data: 0xfeedf00d, Context: 1}, FlagRemoteCQData))
	o.done(o.a, OpSend, 1)
	message(1, here[1][1:1+receiveRoom], FlagRemoteCQData, 0xfeedf00d)
	o.ok(o.a.SendMsg(Msg{Local: []Span{span(0, 300, 40)}, Peer: o.ab, Data: 7, Context: 2}, FlagRemoteCQData|FlagInject))
	o.done(o.a, OpSend, 2)
	message(2, here[0][300:340], FlagRemoteCQData, 7)
	o.ok(o.a.WriteData(span(0, 4000, 900), 0x80000001, o.ab, o.rb.Part(15000, 900), 3))
	o.done(o.a, OpWrite, 3)
	put(15000, here[0][4000:4900])
	told(900, 0x80000001)
	p := []byte("injected, from Go memory")
	o.ok(o.a.InjectWriteData(p, 5, o.ab, o.rb.Part(17001, int64(len(p)))))
	put(17001, p)
	told(int64(len(p)), 5)
	o.ok(o.a.InjectWrite(p[3:], o.ab, o.rb.Part(38000, int64(len(p)-3))))
	put(38000, p[3:])

	// Across the end of the first buffer, too.
	o.ok(o.a.WriteMsg(Msg{
		Local: []Span{span(0, 0, 100), span(1, 200, 50)}, Peer: o.ab, Context: 4,
		Remote: []RemoteSpan{o.rb.Part(11000, 30), o.rb.Part(procShape.room-60, 110), o.rb.Part(12000, 10)},
	}, 0))
	o.done(o.a, OpWrite, 4)
	sent := slices.Concat(here[0][:100], here[1][200:250])
	put(11000, sent[:30])
	put(procShape.room-60, sent[30:140])
	put(12000, sent[140:])
	o.ok(o.a.ReadMsg(Msg{
		Local: []Span{span(0, 8000, 64), span(1, 8000, 36)}, Peer: o.ab, Context: 5,
		Remote: []RemoteSpan{o.rb.Part(50, 60), o.rb.Part(o.rb.Size()-40, 40)},
	}, FlagFence))
	o.done(o.a, OpRead, 5)
	read := slices.Concat(get(50, 60), get(o.rb.Size()-40, 40))
	copy(here[0][8000:], read[:64])
	copy(here[1][8000:], read[64:])

	const counter = 16016
	old := binary.NativeEndian.Uint64(get(counter, 8))
	o.ok(o.a.FetchAdd(span(1, 400, 8), o.ab, o.rb.Part(counter, 8), 1<<33+5, 6))
	o.done(o.a, OpFetchAdd, 6)
	o.ok(o.a.CompareSwap(span(1, 408, 8), o.ab, o.rb.Part(counter, 8), old+1<<33+5, 42, 7))
	o.done(o.a, OpCompareSwap, 7)
	o.ok(o.a.CompareSwap(span(1, 416, 8), o.ab, o.rb.Part(counter, 8), 41, 43, 8))
	o.done(o.a, OpCompareSwap, 8)
	put(counter, binary.NativeEndian.AppendUint64(nil, 42))
	for i, v := range []uint64{old, old + 1<<33 + 5, 42} {
		binary.NativeEndian.PutUint64(here[1][400+8*i:], v)
	}
	for i, b := range mine.bufs {
		same(o.t, "at the end, here", b, here[i])
	}
	o.tell("messages and the rest", cmdHash, 0)
}

// The other process is killed under traffic: every operation completes, the
// endpoint says that the peer is gone, and takes another.
func TestVMPeerKilled(t *testing.T) {
	s := onNIC(t)
	for range 2 {
		o := startOther(t, s, hostKind, sameHost)
		mine := hostKind.make(t, o.a.nic, 2*procShape.room)
		o.ok(o.a.Recv(mine.All(), o.ab, "receive"))
		posted, done := 1, 0
		for killed := false; ; {
			var err error
			for err == nil && posted-done < 20 {
				if posted%2 == 0 {
					err = o.a.Read(mine.All(), o.ab, o.rb.All(), posted)
				} else {
					err = o.a.Write(mine.All(), o.ab, o.rb.All(), posted)
				}
				if err == nil {
					posted++
				}
			}
			if errors.Is(err, ErrNotConnected) {
				break
			}
			o.ok(err)
			if c := o.wait(o.a); c.Err != nil && !killed {
				t.Fatalf("before anybody was killed: %+v", c)
			}
			if done++; done == 50 {
				o.ok(o.cmd.Process.Kill())
				killed = true
			}
		}
		for ; done < posted; done++ {
			if c := o.wait(o.a); c.Err == nil {
				// A completion from before is still one.
				continue
			}
		}
		if n, err := o.a.Poll(make([]Completion, 8)); n != 0 || err != nil {
			t.Errorf("%d completions too many, %v", n, err)
		}
	}
}
