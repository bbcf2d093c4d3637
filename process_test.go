// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpurdma

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
)

// The other process is the test binary, running TestPeerProcess with these set.
const (
	peerAddr = "GPURDMA_TEST_PEER"
	peerKind = "GPURDMA_TEST_KIND"
	peerNIC  = "GPURDMA_TEST_NIC"
)

// site is where the other process runs.
type site struct {
	listen string   // the test's address, to which it connects
	nic    string   // its own
	run    []string // before its command line
}

var sameHost = site{listen: "127.0.0.1:0", nic: testNIC}

// What the parent asks of the other process: a byte, then 8 bytes of seed. The
// answer is the hash of its buffers.
const (
	cmdHash = iota
	cmdFill
	cmdQuit
)

const commandSize = 9

// procShape is what the other process shares.
var procShape = shape{sources: 2, room: 20000, blocks: 60}

// TestPeerProcess is the other process, and no test.
func TestPeerProcess(t *testing.T) {
	addr := os.Getenv(peerAddr)
	if addr == "" {
		t.Skip("it is the other process of TestVMTwoProcesses and TestVMTwoNamespaces")
	}
	s := allKinds(t, os.Getenv(peerNIC))
	var k kind
	for _, k = range s.kinds {
		if k.name == os.Getenv(peerKind) {
			break
		}
	}
	// The next command may come before the answer's own completion.
	e := s.endpoint(t, EndpointOptions{Selective: true, AllowPlaintext: true})
	w := &world{t: t, a: e}
	w.ab = must(e.Connect(limited(t), addr))(t)
	g, bufs := regionOf(t, rand.New(rand.NewPCG(0, 0)), e.nic, k, procShape)
	cmd, answer := hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	w.ok(e.Recv(cmd.All(), w.ab, "command"))
	w.ok(e.Offer(limited(t), w.ab, must(e.Share(w.ab, g.All(), allAccess))(t)))
	for {
		w.done(e, OpRecv, "command")
		p := content(t, cmd)
		switch p[0] {
		case cmdFill:
			refill(t, rand.New(rand.NewPCG(binary.NativeEndian.Uint64(p[1:]), 0)), g, bufs)
		case cmdQuit:
			return
		}
		for i, b := range g.bufs {
			bufs[i] = content(t, b)
		}
		sum := hash(bufs)
		if _, err := answer.WriteAt(sum[:], 0); err != nil {
			t.Fatal(err)
		}
		w.ok(e.Recv(cmd.All(), w.ab, "command"))
		w.ok(e.Send(answer.All(), w.ab, "answer"))
	}
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
	ask, answer *Buffer
}

func startOther(t *testing.T, s setting, k kind, at site) *other {
	t.Helper()
	e := s.endpoint(t, EndpointOptions{AllowPlaintext: true})
	addr := must(e.Listen(at.listen))(t).String()
	o := &other{world: &world{t: t, a: e}}
	line := append(at.run[:len(at.run):len(at.run)], must(os.Executable())(t), "-test.run=^TestPeerProcess$", "-test.v")
	o.cmd = exec.Command(line[0], line[1:]...)
	o.cmd.Env = append(os.Environ(), peerAddr+"="+addr, peerKind+"="+k.name, peerNIC+"="+at.nic)
	o.cmd.Stdout, o.cmd.Stderr = os.Stderr, os.Stderr
	o.ok(o.cmd.Start())
	t.Cleanup(func() { _ = o.cmd.Process.Kill(); _ = o.cmd.Wait() })
	o.ab = must(e.Accept(limited(t)))(t)
	o.rb = must(e.Offered(limited(t), o.ab))(t)
	o.ask, o.answer = hostKind.make(t, e.nic, commandSize), hostKind.make(t, e.nic, sha256.Size)
	o.there = make([][]byte, procShape.sources)
	return o
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
	if want := hash(o.there); string(content(o.t, o.answer)) != string(want[:]) {
		o.t.Fatalf("%s: the other process's bytes are wrong", what)
	}
}

// Two processes, every kind of memory at both ends: layouts are written and
// read, and the other process says what its memory holds.
func TestVMTwoProcesses(t *testing.T) { testTwoProcesses(t, onNIC(t), sameHost) }

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
			o.tell("quit", cmdQuit, 0)
			if err := o.cmd.Wait(); err != nil {
				t.Errorf("the other process: %v", err)
			}
			o.broken(o.a, o.ab)
		})
	}
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
