// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// random fills memory with random bytes, and returns them.
func random(t testing.TB, r *rand.Rand, m *MR) []byte {
	t.Helper()
	p := make([]byte, m.Size())
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	if n, err := m.WriteAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	return p
}

// same compares all bytes.
func same(t testing.TB, what string, m *MR, want []byte) {
	t.Helper()
	if got := content(t, m); !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
			}
		}
	}
}

// eachPair runs a test with every kind at either end.
func (s setting) eachPair(t *testing.T, run func(t *testing.T, local, remote kind)) {
	for i, l := range s.kinds {
		r := s.kinds[(i+1)%len(s.kinds)]
		t.Run(l.name+"-"+r.name, func(t *testing.T) { run(t, l, r) })
	}
}

func TestOperations(t *testing.T)     { testOperations(t, inMemory(t)) }
func TestQueues(t *testing.T)         { testQueues(t, inMemory(t)) }
func TestSelective(t *testing.T)      { testSelective(t, inMemory(t)) }
func TestFences(t *testing.T)         { testFences(t, inMemory(t)) }
func TestConnectionless(t *testing.T) { testConnectionless(t, inMemory(t)) }
func TestRemoteRefusals(t *testing.T) { testRemoteRefusals(t, inMemory(t)) }

// Every operation; every byte of both sides is compared after each of them.
func testOperations(t *testing.T, s setting) {
	s.eachPair(t, func(t *testing.T, local, remote kind) {
		r := testenv.Seeded(t)
		w := s.world(t, EndpointOptions{})
		const size = 10000
		mine, theirs := local.make(t, w.a, size), remote.make(t, w.b, size)
		here, there := random(t, r, mine), random(t, r, theirs)
		k := w.share(theirs.All(), allAccess)
		if k.Access() != allAccess|Atomic {
			t.Errorf("the key allows %v", k.Access())
		}
		check := func(what string) {
			t.Helper()
			same(t, what+", here", mine, here)
			same(t, what+", there", theirs, there)
		}

		w.ok(w.a.Write(mine.Part(100, 500), w.ab, k.Part(7, 500), "w"))
		if c := w.done(w.a, RMA|Write, "w"); c.Len != 500 || c.SrcAddr != w.ab {
			t.Errorf("%+v", c)
		}
		copy(there[7:], here[100:600])
		check("Write")

		w.ok(w.a.Writev([]IOV{mine.Part(0, 3), mine.Part(5000, 70), mine.Part(64, 1)}, w.ab, k.Part(9000, 74), 1))
		w.done(w.a, RMA|Write, 1)
		copy(there[9000:], slices.Concat(here[:3], here[5000:5070], here[64:65]))
		check("Writev")

		w.ok(w.a.WriteMsg(MsgRMA{
			IOV: []IOV{mine.Part(0, 100), mine.Part(200, 50)}, Addr: w.ab, Context: 2,
			RMAIOV: []RMAIOV{k.Part(1000, 30), k.Part(3000, 110), k.Part(2000, 10)},
		}, DeliveryComplete))
		w.done(w.a, RMA|Write, 2)
		sent := slices.Concat(here[:100], here[200:250])
		copy(there[1000:], sent[:30])
		copy(there[3000:], sent[30:140])
		copy(there[2000:], sent[140:])
		check("WriteMsg")

		w.ok(w.a.Read(mine.Part(300, 200), w.ab, k.Part(4000, 200), 3))
		w.done(w.a, RMA|Read, 3)
		copy(here[300:], there[4000:4200])
		check("Read")

		w.ok(w.a.Read(IOV{}, w.ab, RMAIOV{}, "nothing"))
		if c := w.done(w.a, RMA|Read, "nothing"); c.Len != 0 {
			t.Errorf("%+v", c)
		}
		check("Read of no bytes")

		w.ok(w.a.Readv([]IOV{mine.Part(900, 10), mine.Part(700, 20)}, w.ab, k.Part(0, 30), 4))
		w.done(w.a, RMA|Read, 4)
		copy(here[900:910], there)
		copy(here[700:720], there[10:])
		check("Readv")

		w.ok(w.a.ReadMsg(MsgRMA{
			IOV: []IOV{mine.Part(8000, 64)}, Addr: w.ab, Context: 5, RMAIOV: []RMAIOV{k.Part(50, 60), k.Part(9996, 4)},
		}, Fence|Completion))
		w.done(w.a, RMA|Read, 5)
		copy(here[8000:8060], there[50:])
		copy(here[8060:8064], there[9996:])
		check("ReadMsg")

		testAtomics(t, w, k, mine, here, there, check)
		testMessages(t, w, mine, theirs, here, there, check)
		testData(t, w, k, mine, here, there, check)
	})
}

func testAtomics(t *testing.T, w *world, k *Key, mine *MR, here, there []byte, check func(string)) {
	t.Helper()
	for i, at := range []int64{16, 9992} {
		old := binary.NativeEndian.Uint64(there[at:])
		w.ok(w.a.FetchAtomic(1<<33+5, mine.Part(400, 8), w.ab, k.Part(at, 8), Sum, i))
		if c := w.done(w.a, Atomic|Read, i); c.Len != 8 {
			t.Errorf("%+v", c)
		}
		binary.NativeEndian.PutUint64(here[400:], old)
		binary.NativeEndian.PutUint64(there[at:], old+1<<33+5)
		check("FetchAtomic")
		w.ok(w.a.CompareAtomic(42, old+1<<33+5, mine.Part(408, 8), w.ab, k.Part(at, 8), CSwap, nil))
		w.done(w.a, Atomic|Read, nil)
		binary.NativeEndian.PutUint64(here[408:], old+1<<33+5)
		binary.NativeEndian.PutUint64(there[at:], 42)
		check("CompareAtomic")
		w.ok(w.a.CompareAtomicMsg(MsgAtomic{Operand: 43, Result: []IOV{mine.Part(408, 8)}, Addr: w.ab, RMAIOV: []RMAIOV{k.Part(at, 8)}, Op: CSwap}, 41, Fence))
		w.done(w.a, Atomic|Read, nil)
		binary.NativeEndian.PutUint64(here[408:], 42)
		check("CompareAtomicMsg that does not swap")
		w.ok(w.a.FetchAtomicMsg(MsgAtomic{Operand: 1, Result: []IOV{mine.Part(400, 8)}, Addr: w.ab, RMAIOV: []RMAIOV{k.Part(at, 8)}, Op: Sum}, 0))
		w.done(w.a, Atomic|Read, nil)
		binary.NativeEndian.PutUint64(here[400:], 42)
		binary.NativeEndian.PutUint64(there[at:], 43)
		check("FetchAtomicMsg")
	}
}

// testMessages sends from a to b.
func testMessages(t *testing.T, w *world, mine, theirs *MR, here, there []byte, check func(string)) {
	t.Helper()
	w.ok(w.b.Recv(theirs.Part(6000, 1000), w.ba, "r1"))
	w.ok(w.b.Recvv([]IOV{theirs.Part(5000, 10), theirs.Part(5100, 400)}, w.ba, "r2"))
	w.ok(w.b.Recv(IOV{}, w.ba, "r3"))
	w.ok(w.a.Send(mine.Part(10, 300), w.ab, "s1"))
	w.ok(w.a.SendMsg(Message{IOV: []IOV{mine.Part(1, 99), mine.Part(2000, 201)}, Addr: w.ab, Data: 0xfeedf00d, Context: "s2"}, RemoteCQData))
	w.ok(w.a.SendMsg(Message{Addr: w.ab, Data: 7, Context: "s3"}, RemoteCQData|Inject))
	for _, s := range []string{"s1", "s2", "s3"} {
		w.done(w.a, Msg|Send, s)
	}
	if c := w.done(w.b, Msg|Recv, "r1"); c.Len != 300 {
		t.Errorf("%+v", c)
	}
	if c := w.done(w.b, Msg|Recv|RemoteCQData, "r2"); c.Len != 300 || c.Data != 0xfeedf00d || c.SrcAddr != w.ba {
		t.Errorf("%+v", c)
	}
	if c := w.done(w.b, Msg|Recv|RemoteCQData, "r3"); c.Len != 0 || c.Data != 7 {
		t.Errorf("%+v", c)
	}
	copy(there[6000:], here[10:310])
	sent := slices.Concat(here[1:100], here[2000:2201])
	copy(there[5000:5010], sent)
	copy(there[5100:], sent[10:])
	check("messages")
}

// testData tests writes with data for the peer, and injected ones.
func testData(t *testing.T, w *world, k *Key, mine *MR, here, there []byte, check func(string)) {
	t.Helper()
	for i := range 3 {
		w.ok(w.b.Recv(IOV{}, w.ba, i))
	}
	w.ok(w.a.WriteData(mine.Part(77, 1111), 0x80000001, w.ab, k.Part(33, 1111), "d"))
	p := []byte("injected, from Go memory")
	w.ok(w.a.InjectWrite(p, w.ab, k.Part(8000, int64(len(p)))))
	copy(there[8000:], p)
	w.ok(w.a.InjectWriteData(p[:8], 5, w.ab, k.Part(8100, 8)))
	copy(there[8100:], p[:8])
	clear(p) // the call has copied it
	w.ok(w.a.WriteData(IOV{}, 6, w.ab, RMAIOV{}, "nothing"))
	copy(there[33:], here[77:77+1111])
	w.done(w.a, RMA|Write, "d")
	w.done(w.a, RMA|Write, "nothing")
	for i, want := range []CQEntry{{Len: 1111, Data: 0x80000001}, {Len: 8, Data: 5}, {Len: 0, Data: 6}} {
		if c := w.done(w.b, RMA|RemoteWrite|RemoteCQData, i); c.Len != want.Len || c.Data != want.Data {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	check("data")
}

// A full queue is EAGAIN: nothing was posted, and there is room once the CQ was read.
func testQueues(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{TxSize: 10, RxSize: 4})
	const n, each = 100, 64
	mine, theirs := hostKind.make(t, w.a, n*each), hostKind.make(t, w.b, n*each)
	want := random(t, testenv.Seeded(t), mine)
	k := w.share(theirs.All(), allAccess)
	refused := 0
	for posted, done := int64(0), int64(0); done < n; {
		for posted < n {
			err := w.a.WriteMsg(MsgRMA{
				IOV: []IOV{mine.Part(posted*each, each)}, RMAIOV: []RMAIOV{k.Part(posted*each, each)}, Context: posted,
			}, More)
			if errors.Is(err, EAGAIN) {
				if Code(err) != EAGAIN || err.Error() == "" {
					t.Errorf("%v has code %v", err, Code(err))
				}
				refused++
				break
			}
			w.ok(err)
			posted++
		}
		w.done(w.a, RMA|Write, done)
		done++
	}
	if refused == 0 {
		t.Error("the queue was never full")
	}
	same(t, "there", theirs, want)
	for range 4 {
		w.ok(w.a.Recv(IOV{}, AddrUnspec, nil))
	}
	if err := w.a.Recv(IOV{}, AddrUnspec, nil); !errors.Is(err, EAGAIN) {
		t.Errorf("a receive too many: %v", err)
	}
	if n, err := w.a.CQ().Read(make([]CQEntry, 1)); n != 0 || !errors.Is(err, EAGAIN) {
		t.Errorf("an empty CQ: %d, %v", n, err)
	}
}

// With SelectiveCompletion only those operations make a completion that have the flag, and those
// that fail.
func testSelective(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{SelectiveCompletion: true, AutoReceive: 3})
	mine, theirs := hostKind.make(t, w.a, 100), hostKind.make(t, w.b, 100)
	k := w.share(theirs.All(), allAccess)
	for i := range 10 {
		w.ok(w.a.Write(mine.All(), w.ab, k.All(), i))
	}
	msg := func(data uint64, context any) MsgRMA {
		return MsgRMA{IOV: []IOV{mine.All()}, Addr: w.ab, RMAIOV: []RMAIOV{k.All()}, Data: data, Context: context}
	}
	w.ok(w.a.WriteMsg(msg(0, "asked"), Completion))
	w.done(w.a, RMA|Write, "asked")
	for i := range 20 { // the peer posts no receive
		w.ok(w.a.WriteMsg(msg(uint64(i), i), Completion|RemoteCQData))
		w.done(w.a, RMA|Write, i)
		if c := w.done(w.b, RMA|RemoteWrite|RemoteCQData, nil); c.Data != uint64(i) || c.Len != 100 {
			t.Errorf("%+v", c)
		}
	}
	atomic := func(i int64) MsgAtomic {
		return MsgAtomic{Operand: 3, Result: []IOV{mine.Part(8*i, 8)}, Addr: w.ab, RMAIOV: []RMAIOV{k.Part(16, 8)}, Op: Sum, Context: i}
	}
	old := binary.NativeEndian.Uint64(content(t, theirs)[16:])
	w.ok(w.a.FetchAtomic(1, mine.Part(0, 8), w.ab, k.Part(16, 8), Sum, "silent"))
	w.ok(w.a.FetchAtomicMsg(atomic(1), TransmitComplete)) // a level alone asks for no completion
	w.ok(w.a.FetchAtomicMsg(atomic(2), Completion|DeliveryComplete))
	w.done(w.a, Atomic|Read, int64(2))
	for i, want := range []uint64{old, old + 1, old + 4} {
		if v := binary.NativeEndian.Uint64(content(t, mine)[8*i:]); v != want {
			t.Errorf("atomic %d has brought %d, want %d", i, v, want)
		}
	}
	if err := w.b.Recv(IOV{}, w.ba, nil); !errors.Is(err, EINVAL) {
		t.Errorf("a receive with AutoReceive: %v", err)
	}
	bad := forged(t, k, func(f *forgery) { f.key ^= 0xff })
	w.ok(w.a.Write(mine.All(), w.ab, bad.All(), "fails"))
	w.failed(w.a, "fails", RMA|Write, EIO, ibvfd.WCRemAccessErr)
}

// A fenced operation starts when all before it have completed.
func testFences(t *testing.T, s setting) {
	w := s.world(t, EndpointOptions{})
	const size = 4000
	mine, theirs := hostKind.make(t, w.a, 2*size), s.kinds[1].make(t, w.b, size)
	r := testenv.Seeded(t)
	k := w.share(theirs.All(), allAccess)
	for range 20 {
		here, there := random(t, r, mine), random(t, r, theirs)
		w.ok(w.a.Read(mine.Part(0, size), w.ab, k.All(), 1))
		w.ok(w.a.WriteMsg(MsgRMA{IOV: []IOV{mine.Part(size, size)}, Addr: w.ab, RMAIOV: []RMAIOV{k.All()}, Context: 2}, Fence|More))
		w.ok(w.a.ReadMsg(MsgRMA{IOV: []IOV{mine.Part(size/2, size/2)}, Addr: w.ab, RMAIOV: []RMAIOV{k.Part(0, size/2)}, Context: 3}, Fence))
		w.done(w.a, RMA|Read, 1)
		w.done(w.a, RMA|Write, 2)
		w.done(w.a, RMA|Read, 3)
		same(t, "there", theirs, here[size:])
		copy(here, there[:size/2])
		copy(here[size/2:size], here[size:])
		same(t, "here", mine, here)
	}
}

// The first operation to a peer of the address vector connects, and so does the first one after
// the connection was lost.
func testConnectionless(t *testing.T, s setting) {
	a := s.end(t, EndpointOptions{})
	w := &world{t: t, a: a}
	mine := hostKind.make(t, a, 100)
	type target struct {
		e    *Endpoint
		mem  *MR
		key  *Key
		addr Addr
	}
	var targets []target
	for range 3 {
		x := target{e: s.end(t, EndpointOptions{AutoReceive: 2})}
		x.mem = hostKind.make(t, x.e, 100)
		x.addr = must(a.Insert(must(x.e.Listen("127.0.0.1:0"))(t).String()))(t)
		x.key = new(Key)
		w.ok(x.key.UnmarshalBinary(must(must(x.e.Key(x.mem.All(), AddrUnspec, allAccess))(t).MarshalBinary())(t)))
		targets = append(targets, x)
	}
	if err := a.Write(mine.All(), AddrUnspec, targets[0].key.All(), nil); !errors.Is(err, EINVAL) {
		t.Errorf("no address, of three peers: %v", err)
	}
	for round := range 2 {
		want := random(t, testenv.Seeded(t), mine)
		for i, x := range targets {
			w.ok(a.WriteData(mine.All(), uint64(i), x.addr, x.key.All(), i))
		}
		for range targets {
			c := w.wait(a)
			if c.failed != nil || c.SrcAddr != targets[c.OpContext.(int)].addr {
				t.Fatalf("%+v, %v", c, c.failed)
			}
		}
		for i, x := range targets {
			if c := w.done(x.e, RMA|RemoteWrite|RemoteCQData, nil); c.Data != uint64(i) {
				t.Errorf("%+v", c)
			}
			same(t, fmt.Sprint("target ", i), x.mem, want)
			if round == 0 {
				w.ok(x.e.Remove(must(x.e.Accept(limited(t)))(t)))
				if err := a.Lost(limited(t), x.addr); !errors.Is(err, ENOTCONN) || Code(err) != ENOTCONN {
					t.Errorf("lost: %v", err)
				}
			}
		}
	}
	bad := must(a.Insert("127.0.0.1:1"))(t)
	w.ok(a.Send(mine.All(), bad, "nobody"))
	if c := w.wait(a); c.failed == nil || c.failed.OpContext != "nobody" || c.failed.ProvErrno != 0 || c.failed.Err == 0 {
		t.Errorf("%+v, %v", c, c.failed)
	}
	w.ok(a.Remove(bad))
	if err := a.Send(mine.All(), bad, nil); !errors.Is(err, ENOTCONN) {
		t.Errorf("an address that was removed: %v", err)
	}
}

// An endpoint of this package and one of the engine, without MailDepth, work together.
func TestWithEngine(t *testing.T) {
	s := inMemory(t)
	w := &world{t: t, a: s.end(t, EndpointOptions{})}
	n := s.open(t, DomainOptions{}).nic
	e := must(engine.NewEndpoint(n, engine.EndpointOptions{}))(t)
	closing(t, e)
	w.ab = must(w.a.Connect(limited(t), must(e.Listen("127.0.0.1:0"))(t).String()))(t)
	p := must(e.Accept(limited(t)))(t)
	buf := must(n.AllocHost(8))(t)
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), buf.Close()); err != nil {
			t.Error(err)
		}
	})
	w.ok(e.Offer(limited(t), p, must(e.Share(p, buf.All(), ibvfd.AccessRemoteWrite))(t)))
	w.ok(w.a.InjectWrite([]byte("from fi."), AddrUnspec, must(w.a.Offered(limited(t), w.ab))(t).All()))
	mine := hostKind.make(t, w.a, 8)
	w.ok(w.a.Recv(mine.All(), AddrUnspec, "r"))
	w.ok(e.Send(buf.All(), p, nil))
	w.done(w.a, Msg|Recv, "r")
	w.ok(w.a.Read(IOV{}, AddrUnspec, RMAIOV{}, "read"))
	w.done(w.a, RMA|Read, "read")
}
